"""``manage.py leasequeue dead``: what an operator does to dead letters from a shell."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import Queue, QueuePolicy
from django_leasequeue.models import Batch, Task
from tests.databases import ALIASES, IDS

pytestmark = pytest.mark.django_db(databases=ALIASES)


@pytest.fixture(params=ALIASES, ids=IDS)
def emails(request: pytest.FixtureRequest) -> Queue:
    return Queue("emails", using=request.param, policy=QueuePolicy(max_attempts=1))


def bury(queue: Queue, id: str, error: str = "", **how: Any) -> None:
    """A dead letter; without an error, of a worker that vanished."""
    how |= {} if error else {"visibility": 0.000001}
    queue.enqueue({"secret": "s3cret"}, id=id, **how)
    [lease] = queue.claim(worker="w1")
    if error:
        queue.fail(lease, error, retryable=False)


def dead(queue: Queue, *arguments: str) -> str:
    out = io.StringIO()
    call_command("leasequeue", "dead", *arguments, "--database", queue.using, stdout=out)
    return out.getvalue()


def answer(queue: Queue, *arguments: str) -> Any:
    return json.loads(dead(queue, *arguments, "--json"))


def ready(queue: Queue) -> list[str]:
    rows = Task.objects.using(queue.using).filter(state="ready").order_by("seq")
    return list(rows.values_list("task_id", flat=True))


def test_the_list_counts_what_is_alike(emails: Queue) -> None:
    for n in range(2):
        bury(emails, f"a{n}", f"no order {n}", path="shop.mail")
    bury(emails, "lost", path="shop.mail")

    rows = answer(emails, "list")
    text = dead(emails, "list")

    assert [(row["count"], row["task"], row["error"]) for row in rows] == [
        (2, "shop.mail", "no order #"),
        (1, "shop.mail", "worker vanished"),
    ]
    assert text.splitlines()[0].split() == ["COUNT", "QUEUE", "TASK", "NEWEST", "OLDEST", "ERROR"]
    assert "no order #" in text


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ((), "abc"),
        (("--queue", "emails"), "abc"),
        (("--queue", "other"), ""),
        (("--tenant", ""), "ac"),
        (("--id", "a", "--id", "b"), "ab"),
        (("--task", "shop.mail"), "a"),
        (("--error", "order #"), "a"),
        (("--error", "order 7"), "a"),
        (("--lost",), "c"),
        (("--failed",), "ab"),
        (("--older-than", "1"), ""),
        (("--newer-than", "1"), "abc"),
    ],
)
def test_filters(emails: Queue, filters: tuple[str, ...], found: str) -> None:
    bury(emails, "a", "no order 7", path="shop.mail")
    bury(emails, "b", "refused", tenant="acme")
    bury(emails, "c")

    rows = answer(emails, "list", "--each", *filters)

    assert sorted(row["id"] for row in rows) == list(found)


def test_the_list_can_tell_a_script_by_its_exit_status(emails: Queue) -> None:
    assert dead(emails, "list", "--exit-code") == "no dead letters\n"
    bury(emails, "a", "no")

    with pytest.raises(SystemExit) as status:
        dead(emails, "list", "--exit-code")

    assert status.value.code == 3


def test_one_is_shown_with_its_attempts_and_without_its_payload(emails: Queue) -> None:
    bury(emails, "a", "no order 7")

    text = dead(emails, "show", "a")
    facts = answer(emails, "show", "a")

    assert "w1" in text
    assert "no order 7" in text
    assert facts["attempts"][0]["error"]["summary"] == "no order 7"
    assert dead(emails, "show", facts["life"]) == text
    assert "s3cret" not in text + json.dumps(facts)


def test_what_is_not_there_or_not_the_only_one_is_an_error(emails: Queue) -> None:
    bury(emails, "a", "no")
    bury(emails, "a", "no", tenant="acme")

    with pytest.raises(CommandError, match="no dead letter 'b'"):
        dead(emails, "show", "b")
    with pytest.raises(CommandError, match="give --queue and --tenant"):
        dead(emails, "show", "a")


def test_what_matches_is_redriven_on_record(emails: Queue) -> None:
    bury(emails, "a", "no order 7")
    bury(emails, "b", "refused")
    by = ("--by", "ada", "--reason", "mended")

    text = dead(emails, "redrive", "--error", "order", "--yes", *by)

    batch = Batch.objects.using(emails.using).get()
    assert text == f"database: {emails.using}, batch: {batch.pk}, moved: 1, skipped: 0\n"
    assert (batch.by, batch.reason, batch.chosen) == ("ada", "mended", "--error order")
    assert ready(emails) == ["a"]


def test_a_dry_run_moves_nothing(emails: Queue) -> None:
    """Of letters that share a key one would move; where a task has it already, none."""
    for id, key in (("a", "k"), ("b", "k"), ("c", "taken"), ("d", None)):
        bury(emails, id, "no", dedupe_key=key)
    emails.enqueue({}, id="twin", dedupe_key="taken")

    told = dead(emails, "redrive", "--all", "--dry-run")

    assert told == "dry run: True, would move: 2, would stay: 2\n"
    assert dead(emails, "discard", "--all", "--dry-run") == "dry run: True, would move: 4\n"
    assert ready(emails) == ["twin"]
    with pytest.raises(SystemExit):
        dead(emails, "redrive", "--all", "--yes")
    assert Batch.objects.using(emails.using).get().moved == 2


def test_what_stays_is_told_and_is_an_exit_status(emails: Queue) -> None:
    bury(emails, "a", "no", dedupe_key="k")
    bury(emails, "b", "no")
    emails.enqueue({}, id="twin", dedupe_key="k")
    out = io.StringIO()

    with pytest.raises(SystemExit) as status:
        call_command(
            "leasequeue", "dead", "redrive", "--all", "--yes", "--json",
            "--database", emails.using, stdout=out,
        )  # fmt: skip

    told = json.loads(out.getvalue())
    assert status.value.code == 3
    assert (told["moved"], told["skipped"], told["why"]) == (1, 1, {"key '…' is held by twin": 1})


def test_a_rate_is_kept(emails: Queue) -> None:
    """G61"""
    for id in "abc":
        bury(emails, id, "no")

    dead(emails, "redrive", "--all", "--yes", "--rate", "0.01")

    assert (emails.depth().visible, emails.depth().scheduled) == (1, 2)


def test_what_matches_is_discarded(emails: Queue) -> None:
    bury(emails, "a", "no")
    bury(emails, "b", "no")

    dead(emails, "discard", "--id", "a", "--yes")

    rows = answer(emails, "list", "--each")
    assert [row["id"] for row in rows] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("redrive",), "say which by a filter, or --all"),
        (("redrive", "--all", "--queue", "emails"), "say which by a filter, or --all"),
        (("discard", "--all"), "give --yes"),
        (("redrive", "--all", "--yes", "--rate", "0"), "rate must be from"),
    ],
)
def test_a_call_that_cant_be_meant_moves_nothing(
    emails: Queue, arguments: tuple[str, ...], told: str
) -> None:
    bury(emails, "a", "no")

    with pytest.raises(CommandError, match=told):
        dead(emails, *arguments)

    assert ready(emails) == []
    assert not Batch.objects.using(emails.using).exists()


def test_every_database_of_ours_is_asked(settings: Any) -> None:
    settings.TASKS = {
        alias: settings.TASKS["default"] | {"QUEUES": [], "OPTIONS": {"using": alias}}
        for alias in ALIASES
    }
    for alias in ALIASES:
        bury(Queue("emails", using=alias, policy=QueuePolicy(max_attempts=1)), alias, "no")
    out, text, status = io.StringIO(), io.StringIO(), io.StringIO()

    call_command("leasequeue", "dead", "list", "--each", "--json", stdout=out)
    call_command("leasequeue", "dead", "list", stdout=text)
    call_command("leasequeue", "status", stdout=status)
    call_command("leasequeue", "dead", "show", ALIASES[-1], stdout=io.StringIO())
    call_command("leasequeue", "dead", "redrive", "--all", "--yes", stdout=io.StringIO())

    rows = json.loads(out.getvalue())
    assert {(row["database"], row["id"]) for row in rows} == {(alias, alias) for alias in ALIASES}
    shown = {line.split()[0] for line in text.getvalue().splitlines()}
    assert shown == {"DATABASE", *ALIASES}
    assert status.getvalue().count("Database ") == len(ALIASES)
    assert [Batch.objects.using(alias).get().moved for alias in ALIASES] == [1] * len(ALIASES)
