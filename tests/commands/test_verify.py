"""``manage.py leasequeue verify``, ``rebuild`` and ``advance-tokens``."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.models import QuerySet

from django_leasequeue import LeaseLostError, Queue
from django_leasequeue.audit import verify
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.stores import tokens
from django_leasequeue.stores.tokens import leap
from django_leasequeue.worker.readiness import CannotStartError, refuse_used_tokens
from tests.databases import ALIASES, IDS, on_all
from tests.stores.test_audit import door

from .test_prune import backend

pytestmark = pytest.mark.django_db(databases=ALIASES)


@pytest.fixture(params=ALIASES, ids=IDS)
def using(request: pytest.FixtureRequest, settings: Any) -> str:
    settings.TASKS = {"only": backend(request.param, ["mail"])}
    return str(request.param)


def run(*arguments: str) -> str:
    told = StringIO()
    call_command("leasequeue", *arguments, stdout=told)
    return told.getvalue()


def fails(*arguments: str) -> tuple[str, CommandError]:
    told = StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("leasequeue", *arguments, stdout=told)
    return told.getvalue(), raised.value


def test_without_drift_it_says_what_it_read(using: str) -> None:
    queue = Queue("mail", using=using)
    queue.enqueue_many([{"payload": n} for n in range(3)])
    queue.complete(queue.claim(worker="w")[0])

    told = run("verify")

    assert f"{using}: 5 rows of the log, 3 lives, 2 tasks held, in" in told
    assert told.rstrip().endswith("no drift")


def test_drift_is_told_line_by_line_and_by_the_exit_status(using: str) -> None:
    """G63"""
    task = Queue("mail", using=using).enqueue({"card": 4711}, id="a")
    QuerySet(Task, using=using).update(priority=9)

    told, error = fails("verify")

    line, summary = told.rstrip().split("\n")
    what = f"mail 'a', life {task.life}: priority is 9, by the log 0"
    assert line == f"{using}: differs: {what}"
    assert summary.endswith("1 differs")
    assert (str(error), error.returncode) == ("drift: 1", 1)


def test_a_report_is_one_object(using: str) -> None:
    task = Queue("mail", using=using).enqueue(1, id="a")
    QuerySet(Task, using=using).delete()

    told = json.loads(fails("verify", "--json")[0])

    assert told["clean"] is False
    [report] = told["databases"]
    assert (report["database"], report["drifts"], report["tasks"]) == (using, {"missing": 1}, 0)
    [finding] = report["findings"]
    assert (finding["drift"], finding["life"], finding["id"]) == ("missing", str(task.life), "a")
    assert json.loads(run("rebuild", "--json"))["clean"] is True


def test_a_report_does_not_grow_with_the_drift(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.management.verbs.auditing.FINDINGS_MAX", 2)
    Queue("mail", using=using).enqueue_many([{"payload": n} for n in range(5)])
    QuerySet(Task, using=using).delete()

    [report] = json.loads(fails("verify", "--json")[0])["databases"]

    assert (report["drifts"], len(report["findings"])) == ({"missing": 5}, 2)


def test_a_terminal_shows_how_far_it_is(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "__kwdefaults__", {"size": 1})
    Queue("mail", using=using).enqueue_many([{"payload": n} for n in range(2)])

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    call_command("leasequeue", "verify", stdout=StringIO(), stderr=terminal)

    assert "%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_rebuild_says_what_it_did_and_what_it_left(using: str) -> None:
    queue = Queue("mail", using=using)
    lost, unknown = queue.enqueue(1, id="lost"), queue.enqueue(1, id="unknown")
    QuerySet(Task, using=using).filter(life=lost.life).delete()
    with door(using):
        QuerySet(TaskTransition, using=using).filter(life=unknown.life).delete()

    told, error = fails("rebuild")

    assert "'lost'" in told
    assert "(restored)" in told
    assert "kept: cancel it, or say --delete-unlogged" in told
    assert told.rstrip().endswith("1 extra, 1 missing; 1 mended")
    assert str(error) == "drift: 1"
    assert "(removed)" in run("rebuild", "--delete-unlogged")
    assert "no drift" in run("verify")


def set_back(using: str, to: int) -> None:
    """As a dump does that brings rows, and not where the sequence stood."""
    connection = connections[using]
    if connection.vendor == "mysql":
        # There the sequence is never behind the log itself.
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM leasequeue_transition WHERE id > %s", [to])
    leap(connection, to)


@on_all
def test_a_sequence_that_was_set_back_is_named_refused_and_moved_on(using: str) -> None:
    """G65"""
    queue = Queue("mail", using=using)
    queue.enqueue(1)
    [lease] = queue.claim(worker="w")
    refuse_used_tokens(using)
    set_back(using, lease.token - 1)

    assert f"{lease.token} was given out: leasequeue advance-tokens" in fails("verify")[0]
    with pytest.raises(CannotStartError, match=f"stands at {lease.token - 1}: manage.py leaseq"):
        refuse_used_tokens(using)
    told = run("advance-tokens")

    assert f"{using}: the next token is above {lease.token}" in told
    refuse_used_tokens(using)
    queue.enqueue(2)
    assert queue.claim(worker="w")[0].token > lease.token


@on_all
def test_after_an_older_state_is_back_no_old_lease_passes_for_a_new_one(using: str) -> None:
    """G65: A dump was restored, or a replica that lagged took over: docs/recovery.md."""
    queue = Queue("mail", using=using)
    task = queue.enqueue(1, id="a")
    older, stands = tables(using), tokens.standing(using)
    [lost] = queue.claim(worker="survivor")
    put_back(using, older)
    set_back(using, stands)

    run("advance-tokens", "--by", "1000")

    assert "no drift" in run("verify")
    [lease] = queue.claim(worker="w")
    assert (lease.life, lease.attempt) == (task.life, 1)
    assert lease.token > lost.token + 900
    with pytest.raises(LeaseLostError):
        queue.complete(lost)
    queue.complete(lease)


def tables(using: str) -> dict[type, list[Any]]:
    models = (Task, TaskTransition)
    return {model: list(QuerySet(model, using=using)) for model in models}


def put_back(using: str, rows: dict[type, list[Any]]) -> None:
    with door(using):
        for model, instances in rows.items():
            QuerySet(model, using=using).delete()
            QuerySet(model, using=using).bulk_create(instances)


@pytest.mark.parametrize(
    ("by", "message"), [("-1", "tokens never go back"), (str(2**63), "no token is above")]
)
def test_a_leap_that_can_not_be_meant_is_refused(using: str, by: str, message: str) -> None:
    assert message in str(fails("advance-tokens", f"--by={by}")[1])


def test_a_leap_is_seen_by_the_next_token(using: str) -> None:
    before = tokens.standing(using)
    tokens.advance(using, before - 1)
    assert tokens.standing(using) == before
