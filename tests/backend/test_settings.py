"""TASKS as a site writes it: what is understood, and what the system checks have to say."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_leasequeue import Queue, QueuePolicy
from django_leasequeue.checks import check_skip_locked
from django_leasequeue.conf import Options, options_for, parse

OURS = "django_leasequeue.backend.LeaseQueueBackend"


def ours(queues: list[str], **options: Any) -> dict[str, Any]:
    return {"BACKEND": OURS, "QUEUES": queues, "OPTIONS": options}


def found() -> list[tuple[str | None, str]]:
    return [
        (error.id, error.msg)
        for error in run_checks(databases=["default", "sqlite"])
        if str(error.id).startswith("leasequeue")
    ]


def test_a_queue_inherits_what_it_does_not_say_itself() -> None:
    options = parse(
        {"policy": {"visibility": 60, "max_attempts": 3}, "queues": {"mail": {"visibility": 90}}}
    )

    assert options.policy_of("mail") == QueuePolicy(visibility=90, max_attempts=3)
    assert options.policy_of("other") == QueuePolicy(visibility=60, max_attempts=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"visibilty": 30}, "unknown OPTIONS visibilty; known are .*using"),
        ({"policy": {"visibility": 0}}, "visibility must be from"),
        ({"policy": {"visibilty": 30}}, "visibilty"),
        ({"policy": None}, "NoneType"),
        ({"queues": {"mail": {"max_attempts": 0}}}, "max_attempts must be a whole number"),
        ({"task_modules": "shop"}, "task_modules must be a list of strings"),
        ({"poll_interval": 0}, "poll_interval must be from"),
        ({"payload_bytes_max": "1 MB"}, "payload_bytes_max must be a whole number"),
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        parse(options)


def test_a_queue_has_the_options_of_the_backend_that_names_it(settings: Any) -> None:
    settings.TASKS = {
        "any": ours([], using="sqlite", poll_interval=1),
        "mail": ours(["mail"], poll_interval=2),
    }

    assert options_for("mail").poll_interval == 2
    assert options_for("other").poll_interval == 1
    assert Queue("other").using == "sqlite"


def test_a_site_without_our_backend_has_the_defaults(settings: Any) -> None:
    del settings.TASKS

    assert options_for("mail") == Options()


@pytest.mark.django_db(databases=["default", "sqlite"])
def test_the_checks_are_content_with_the_tests_settings(settings: Any) -> None:
    settings.TASKS = {"a": ours([]), "b": ours([], using="sqlite")}

    assert found() == []


@pytest.mark.django_db(databases=["default", "sqlite"])
@pytest.mark.parametrize(
    ("options", "id", "message"),
    [
        ({"usin": "x"}, "leasequeue.E001", "TASKS['a']: unknown OPTIONS usin"),
        ({"using": "nowhere"}, "leasequeue.E002", "OPTIONS['using'] is 'nowhere'"),
        ({"listen_using": "nowhere"}, "leasequeue.E002", "OPTIONS['listen_using'] is 'nowhere'"),
    ],
)
def test_a_check_names_the_option_that_is_wrong(
    settings: Any, options: dict[str, Any], id: str, message: str
) -> None:
    settings.TASKS = {"a": ours([], **options)}

    [(found_id, found_message)] = found()
    assert found_id == id
    assert message in found_message


@pytest.mark.django_db(databases=["default", "sqlite"])
@pytest.mark.parametrize("mode", [None, "DEFERRED"])
def test_sqlite_needs_immediate_transactions(
    settings: Any, monkeypatch: pytest.MonkeyPatch, mode: str | None
) -> None:
    monkeypatch.setitem(
        connections["sqlite"].settings_dict, "OPTIONS", {"transaction_mode": mode} if mode else {}
    )
    settings.TASKS = {"a": ours([], using="sqlite")}

    [(id, message)] = found()
    assert (id, "'sqlite' is SQLite without IMMEDIATE" in message) == ("leasequeue.E003", True)


@pytest.mark.django_db
def test_a_database_that_can_not_step_over_locked_rows_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B57"""
    connection = connections["default"]
    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", False)
    monkeypatch.setattr(connection, "vendor", "mysql")

    [error] = check_skip_locked(connection)
    assert error.id == "leasequeue.E004"
    assert f"{connection.display_name} {connection.get_database_version()[0]}" in error.msg
