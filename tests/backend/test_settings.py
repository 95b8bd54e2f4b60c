"""TASKS as a site writes it: what is understood, and what the system checks have to say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from django_leasequeue import Queue, QueuePolicy, checks
from django_leasequeue.checks import check_backends, check_listening, check_skip_locked
from django_leasequeue.compat import task_backends
from django_leasequeue.conf import Options, options_for, parse
from tests.databases import ALIASES

OURS = "django_leasequeue.backend.LeaseQueueBackend"


def ours(queues: list[str], **options: Any) -> dict[str, Any]:
    return {"BACKEND": OURS, "QUEUES": queues, "OPTIONS": options}


def found() -> list[tuple[str | None, str]]:
    ours = [each for each in run_checks(databases=ALIASES) if "leasequeue" in str(each.id)]
    assert all(error.hint for error in ours)
    return [(error.id, error.msg) for error in ours]


def test_a_queue_inherits_what_it_does_not_say_itself() -> None:
    limits, own = {"visibility": 60, "max_attempts": 3}, {"mail": {"visibility": 90}}
    options = parse("a", {"OPTIONS": {"policy": limits, "queues": own}, "QUEUES": []})

    assert options.policy_of("mail") == QueuePolicy(visibility=90, max_attempts=3)
    assert options.policy_of("other") == QueuePolicy(visibility=60, max_attempts=3)


@pytest.mark.parametrize(
    ("asked", "understood"),
    [
        (None, {}),
        (60, dict.fromkeys(["acked", "dropped", "cancelled", "duplicate", "heartbeat"], 60)),
        ({"acked": 60, "dropped": None}, {"acked": 60}),
    ],
)
def test_nothing_is_forgotten_unless_asked_for(asked: Any, understood: dict[str, float]) -> None:
    """G57"""
    assert parse("a", {}).retention == {}
    assert parse("a", {"OPTIONS": {"retention": asked}}).retention == understood


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"visibilty": 30}, "unknown OPTIONS visibilty; known are .*using"),
        ({7: 30}, "unknown OPTIONS 7"),
        ({"policy": {"visibility": 0}}, "visibility must be from"),
        ({"policy": {"visibilty": 30}}, "visibilty"),
        ({"policy": None}, "policy must be a dictionary, not None"),
        ({"policy": "abc"}, "policy must be a dictionary, not 'abc'"),
        ({"queues": ["mail"]}, "queues must be a dictionary"),
        ({"queues": {"mail": 3}}, r"queues\['mail'\] must be a dictionary"),
        ({"queues": {"mail": {"max_attempts": 0}}}, "max_attempts must be a whole number"),
        ({"queues": {5: {}}}, r"OPTIONS\['queues'\] has 5, which QUEUES has not"),
        ({"queues": {"male": {}}}, r"OPTIONS\['queues'\] has male, which QUEUES has not"),
        ({"task_modules": "shop"}, "task_modules must be a list of strings"),
        ({"task_modules": None}, "task_modules must be a list of strings"),
        ({"task_modules": [1]}, "each of task_modules must be a string"),
        ({"poll_interval": 0}, "poll_interval must be from"),
        ({"retention": 0}, "retention must be from"),
        ({"retention": {"dead": 60}}, "retention of dead; what can be forgotten is acked, canc"),
        ({"retention": {"acked": "1 week"}}, "retention must be from"),
        ({"payload_bytes_max": "1 MB"}, "payload_bytes_max must be a whole number"),
        ({"using": None}, "using must be a string"),
        ({"listen_using": 5}, "listen_using must be a string"),
    ],
)
def test_options_that_make_no_sense_are_errors(options: Any, message: str) -> None:
    """G36: with the name of the backend that has them."""
    with pytest.raises(ImproperlyConfigured, match=rf"TASKS\['a'\]: .*{message}"):
        parse("a", ours(["mail"]) | {"OPTIONS": options})


@pytest.mark.django_db(databases=ALIASES)
@pytest.mark.parametrize("wrong", [None, "abc", 5, ["abc"]])
@pytest.mark.parametrize("key", ["QUEUES", "OPTIONS"])
def test_a_setting_of_another_type_is_an_error_wherever_it_is_met(
    settings: Any, key: str, wrong: Any
) -> None:
    """G36: by the system check, by whoever opens a queue, by django.tasks and by the worker."""
    if key == "QUEUES" and isinstance(wrong, list):
        wrong = ["fine", 5]
    settings.TASKS = {"a": ours(["abc"]) | {key: wrong}}

    [(id, message)] = found()
    assert (id, message.startswith("TASKS['a']: ")) == ("leasequeue.E001", True)
    assert key in message
    with pytest.raises(ImproperlyConfigured, match=key):
        Queue("abc")
    with pytest.raises(ImproperlyConfigured, match=key):
        task_backends["a"].lease_options  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises((CommandError, SystemCheckError), match=key):
        call_command("leasequeue_worker", backend="a", drain=True, skip_checks=False)


def test_a_backend_that_can_not_be_imported_is_an_error_of_its_own(settings: Any) -> None:
    settings.TASKS = {"a": {"BACKEND": "nowhere.Backend"}, "b": ours([], poll_interval=2)}

    [error] = check_backends(None)
    assert (error.id, error.msg) == ("leasequeue.E001", "TASKS['a']: No module named 'nowhere'")
    assert Queue("abc").options.poll_interval == 2


def test_a_queue_has_the_options_of_the_backend_that_names_it(settings: Any) -> None:
    settings.TASKS = {
        "any": ours([], using="sqlite", poll_interval=1),
        "mail": ours(["mail"], poll_interval=2),
    }

    assert options_for("mail").poll_interval == 2
    assert options_for("other").poll_interval == 1
    assert Queue("other").using == "sqlite"


def test_of_two_backends_in_one_database_the_first_one_has_a_queues_options(settings: Any) -> None:
    settings.TASKS = {"a": ours([], poll_interval=1), "b": ours([], poll_interval=2)}

    assert Queue("mail").options.poll_interval == 1


@pytest.mark.parametrize("queues", [[], ["mail"]])
def test_a_queue_in_two_databases_is_not_opened_without_saying_which(
    settings: Any, queues: list[str]
) -> None:
    """G36: else its tasks would end where nobody looks for them."""
    settings.TASKS = {
        "a": ours(queues, poll_interval=1),
        "b": ours(queues, using="sqlite", poll_interval=2),
    }

    with pytest.raises(ImproperlyConfigured, match="'mail' in several databases"):
        Queue("mail")
    assert Queue("mail", using="default").options.poll_interval == 1
    assert Queue("mail", using="sqlite").options.poll_interval == 2


def test_a_site_without_our_backend_has_the_defaults(settings: Any) -> None:
    del settings.TASKS

    assert options_for("mail") == Options()


@pytest.mark.django_db(databases=ALIASES)
def test_the_checks_are_content_with_the_tests_settings(settings: Any) -> None:
    settings.TASKS = {"a": ours([]), "b": ours([], using="sqlite")}

    assert found() == []


@pytest.mark.django_db(databases=ALIASES)
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


@pytest.mark.django_db(databases=ALIASES)
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


@pytest.mark.django_db(databases=ALIASES)
@pytest.mark.parametrize(
    ("options", "id", "message"),
    [
        ({"policy": {"visibility": 1}}, "W002", "['policy']: a visibility of 1 s leaves"),
        ({"queues": {"mail": {"visibility": 2}}}, "W002", "['queues']['mail']: a visibility of 2"),
        ({"policy": {"backoff_cap": 1}}, "W003", "backoff_cap (1) is below backoff_base (5)"),
    ],
)
def test_what_is_hardly_meant_is_doubted(
    settings: Any, options: dict[str, Any], id: str, message: str
) -> None:
    settings.TASKS = {"a": ours(["mail"]) | {"OPTIONS": options}}

    told = found()

    assert f"leasequeue.{id}" in [known for known, _ in told]
    assert any(message in text for _, text in told)


@pytest.mark.django_db(databases=ALIASES)
def test_a_queue_named_twice_in_one_database_is_doubted(settings: Any) -> None:
    settings.TASKS = {
        "a": ours(["mail", "orders"]),
        "b": ours(["mail"]),
        "elsewhere": ours(["mail"], using="sqlite"),
    }

    [(id, message)] = found()

    assert id == "leasequeue.W001"
    assert "'mail' in the database 'default' is named more than once: TASKS['a']" in message


@pytest.mark.django_db(databases=ALIASES)
def test_pending_migrations_are_told_once_a_database(settings: Any) -> None:
    settings.TASKS = {"a": ours(["mail"]), "b": ours(["orders"])}
    MigrationRecorder(connections["default"]).record_unapplied("leasequeue", "0003_postgresql")

    assert [id for id, _ in found()] == ["leasequeue.W007"]


@pytest.mark.django_db(databases=ALIASES)
def test_a_database_that_nobody_commits_in_is_an_error(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = {"a": ours(["mail"])}
    monkeypatch.setitem(connections["default"].settings_dict, "AUTOCOMMIT", False)

    assert [id for id, _ in found()] == ["leasequeue.E005"]


class KeepsOut:
    """A router that wants other tables only, as those of a site's second database often do."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return app_label == "orders" if db == "sqlite" else None


@pytest.mark.django_db(databases=ALIASES)
def test_routers_that_keep_the_tables_out_are_doubted(settings: Any) -> None:
    settings.TASKS = {"a": ours(["mail"]), "b": ours(["orders"], using="sqlite")}
    settings.DATABASE_ROUTERS = [f"{__name__}.KeepsOut"]

    [(id, message)] = found()

    assert (id, "'sqlite'" in message) == ("leasequeue.W008", True)


@pytest.mark.django_db(databases=ALIASES)
def test_a_wait_that_outlasts_a_lease_is_doubted(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"transaction_mode": "IMMEDIATE", "timeout": 30}
    monkeypatch.setitem(connections["sqlite"].settings_dict, "OPTIONS", options)
    settings.TASKS = {"a": ours([], using="sqlite")}

    [(id, message)] = found()

    assert (id, "['timeout'] is 30" in message) == ("leasequeue.W004", True)


@pytest.mark.django_db(databases=ALIASES)
def test_a_queue_beside_the_requests_transactions_is_doubted(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    settings.TASKS = {"a": ours([], using="sqlite")}
    [(id, message)] = found()
    settings.TASKS = {"a": ours([])}

    assert (id, "'default'] has ATOMIC_REQUESTS" in message) == ("leasequeue.W005", True)
    assert found() == []


@pytest.mark.django_db
def test_a_proxy_that_swallows_notifications_is_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = {"a": ours([])}
    options = parse("a", settings.TASKS["a"])
    if connections["default"].vendor != "postgresql":
        pytest.skip("DATABASE_URL is not a PostgreSQL")
    monkeypatch.setattr(checks, "is_direct", lambda connection: False)

    [doubt] = check_listening("a", options)

    assert (doubt.id, "through 'default'" in doubt.msg) == ("leasequeue.W006", True)


@pytest.mark.django_db(databases=ALIASES)
def test_pending_migrations_are_named_but_to_who_is_about_to_make_them(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = {"a": ours([])}
    MigrationRecorder(connections["default"]).record_unapplied("leasequeue", "0003_postgresql")

    [(id, message)] = found()
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])

    assert (id, "0003_postgresql" in message) == ("leasequeue.W007", True)
    assert found() == []


def test_each_check_has_an_id_of_its_own_that_the_docs_explain() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/production.md"
    explained = re.findall(r"^\| `(?:leasequeue\.)?([EW]\d+)`", page.read_text(), re.MULTILINE)

    said = re.findall(r'"leasequeue\.([EW]\d+)"', Path(checks.__file__).read_text())
    assert sorted(explained) == sorted(said)


@pytest.mark.django_db
def test_the_checks_that_need_no_server_ask_none(
    settings: Any, django_assert_num_queries: Any
) -> None:
    settings.TASKS = {"a": ours(["mail"])}

    with django_assert_num_queries(0):
        assert list(check_backends(None)) == []
