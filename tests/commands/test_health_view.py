"""The probe as a view."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError
from django.test import RequestFactory

from django_leasequeue import Queue, health
from tests.commands.test_prune import backend

pytestmark = pytest.mark.django_db(databases=["default"])


def ask(**query: str) -> tuple[int, dict[str, Any]]:
    answer = health.view(RequestFactory().get("/", query))
    return answer.status_code, json.loads(answer.content)


@pytest.fixture
def mail(settings: Any) -> Queue:
    settings.TASKS = {"one": backend("default", ["mail"])}
    return Queue("mail")


def test_it_answers_503_and_says_why(mail: Queue) -> None:
    assert ask() == (503, {"healthy": False, "problems": ["no worker is alive"]})


def test_it_takes_the_command_s_options(mail: Queue) -> None:
    mail.enqueue({})

    status, told = ask(queue="mail", oldest="0")

    assert status == 503
    assert [problem.split(":")[0] for problem in told["problems"]] == ["mail", "mail"]
    assert {ask(oldest=bad)[0] for bad in ("x", "nan", "-1")} == {400}
    assert ask(queue="\0")[0] == 400


def test_a_database_that_is_away_is_a_problem_and_no_error(
    mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(health, "overview", away)

    status, told = ask()

    assert status == 503
    assert told["problems"] == ["the database 'default' can't be reached: connection refused"]
