"""The verbs of an operator at a terminal: what they say, and their exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils.translation import override

from django_leasequeue import Queue
from django_leasequeue.models import Pause, Worker
from tests.databases import ALIASES, IDS

from .test_prune import backend

pytestmark = pytest.mark.django_db(databases=ALIASES)


@pytest.fixture(params=ALIASES, ids=IDS)
def mail(request: pytest.FixtureRequest, settings: Any) -> Queue:
    settings.TASKS = {"one": backend(request.param, ["mail"])}
    return Queue("mail", using=request.param)


def run(*arguments: str) -> str:
    told = StringIO()
    call_command("leasequeue", *arguments, stdout=told)
    return told.getvalue()


def refusal(*arguments: str) -> CommandError:
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    return refused.value


def a_worker(queue: Queue, *, seconds_ago: float = 0, queues: str = '["mail"]') -> None:
    at = queue.now() - timedelta(seconds=seconds_ago)
    task = {
        **{"queue": "mail", "tenant": "", "id": "a", "life": "", "path": "shop.send"},
        **{"attempt": 1, "token": 7, "since": str(at)},
    }
    Worker.objects.using(queue.using).create(
        **{"name": "w1", "host": "h", "pid": 1, "threads": 1, "queues": queues},
        **{"tasks": json.dumps([task]), "started_at": at, "seen_at": at},
    )


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("status", "--watch", "--interval", "nan"), "--interval"),
        (("health", "--oldest", "nan"), "--oldest"),
        (("health", "--oldest", "-1"), "--oldest"),
        (("dead", "list", "--limit", "-1"), "--limit"),
        (("dead", "list", "--older-than", "nan"), "--older-than"),
        (("dead", "list", "--newer-than", "1e9"), "--newer-than"),
    ],
)
def test_a_number_that_cant_be_meant_is_refused_by_its_option(
    mail: Queue, arguments: Sequence[str], option: str
) -> None:
    assert f"argument {option}: must be at least" in str(refusal(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--queue", "\udc80"),
        ("health", "--queue", "\udc80"),
        ("dead", "list", "--queue", "a\0"),
        ("dead", "show", "\udc80"),
    ],
    ids=ascii,
)
def test_what_no_database_can_be_asked_for_is_refused_by_name(arguments: Sequence[str]) -> None:
    """A shell passes bytes that are no UTF-8."""
    name = "id" if "show" in arguments else "queue"

    said = str(refusal(*arguments))

    assert said.startswith(name)
    assert said.endswith("must not contain NUL characters or lone surrogates")


def test_status_tells_how_each_queue_is_doing_and_why(mail: Queue) -> None:
    mail.enqueue({}, tenant="acme")

    told = run("status", "--tenants")

    head, line, tenant = told.splitlines()[:3]
    assert head.split()[:3] == ["QUEUE", "VERDICT", "VISIBLE"]
    assert line.split()[:3] == ["mail", "stuck", "1"]
    assert tenant.split()[:2] == ["acme", "1"]
    assert "mail is stuck: 1 task waits, no worker is there for this queue." in told


def test_the_terminal_is_english_whatever_the_sites_language(mail: Queue) -> None:
    mail.enqueue({})

    with override("de"):
        assert "mail is stuck: 1 task waits, no worker is there" in run("status")


def test_status_for_programs(mail: Queue) -> None:
    mail.pause(by="ada", reason="deploy")

    [told] = json.loads(run("status", "--json"))

    assert (told["queue"], told["verdict"], told["visible"]) == ("mail", "paused", 0)
    assert told["paused"]["by"] == "ada"
    assert told["arrivals_per_minute"] == 0


def test_status_for_cron(mail: Queue) -> None:
    run("status", "--check")
    mail.enqueue({})

    refused = refusal("status", "--check")

    assert (str(refused), refused.returncode) == ("mail is stuck", 3)


def test_workers_tells_who_does_what_since_when(mail: Queue) -> None:
    a_worker(mail)

    line = run("workers").splitlines()[1]

    assert line.split()[:3] == ["w1", "h", "1"]
    assert "mail/a shop.send attempt 1 for" in line
    assert json.loads(run("workers", "--json"))[0]["tasks"][0]["token"] == 7


def test_workers_fails_where_nobody_is_alive(mail: Queue) -> None:
    a_worker(mail, seconds_ago=100)

    told = StringIO()
    with pytest.raises(CommandError, match="no worker is alive"):
        call_command("leasequeue", "workers", stdout=told)

    assert told.getvalue().splitlines()[1].endswith("gone")


def test_pause_and_resume_are_on_record(mail: Queue) -> None:
    """G67"""
    mail.enqueue({})

    assert "mail is paused" in run("pause", "mail", "--by", "ada", "--reason", "deploy")
    assert "was paused already" in run("pause", "mail")
    assert mail.claim(worker="w") == []
    assert "1 of its tasks is visible" in run("resume", "mail", "--by", "bob")
    assert "wasn't paused" in run("resume", "mail")

    row = Pause.objects.using(mail.using).exclude(queue="").get()
    assert (row.paused_by, row.reason, row.resumed_by) == ("ada", "deploy", "bob")


def test_a_misspelt_queue_isn_t_paused(mail: Queue) -> None:
    assert "no queue 'mial' in the database" in str(refusal("pause", "mial"))
    assert not Pause.objects.using(mail.using).exclude(queue="").exists()


def test_task_show_tells_a_story_by_id_and_by_life(mail: Queue) -> None:
    task = mail.enqueue({"card": 4711}, id="a")
    [lease] = mail.claim(worker="w1")
    mail.fail(lease, ValueError("no such address"), retryable=False)
    mail.redrive(["a"], by="ada", reason="mended")

    told = run("task", "show", "a")

    assert [line.split()[2] for line in told.splitlines()[-3:]] == [
        *("enqueued", "failed", "redriven"),
    ]
    assert "by ada: mended" in told
    assert "ValueError: no such address" in told
    assert "4711" not in told
    assert "4711" in run("task", "show", "a", "--payload")
    assert run("task", "show", str(task.life)) == told
    assert len(json.loads(run("task", "show", "a", "--json"))["attempts"]) == 1


def test_task_show_tells_of_what_has_left(mail: Queue) -> None:
    task = mail.enqueue({})
    mail.complete(mail.claim(worker="w1")[0], result={"sent": True})

    told = run("task", "show", str(task.life), "--payload")

    assert "left the queue: acked" in told
    assert '{"sent": true}' in told


def test_task_show_asks_which_one_is_meant(mail: Queue) -> None:
    for tenant in ("x", "y"):
        mail.enqueue({}, id="a", tenant=tenant)

    assert "several tasks have the id 'a'" in str(refusal("task", "show", "a"))
    assert "tenant y" in run("task", "show", "a", "--tenant", "y")
    assert "no task 'b' is held" in str(refusal("task", "show", "b"))


def test_cancel_says_what_it_didn_t_find(mail: Queue) -> None:
    mail.enqueue({}, id="a")

    refused = refusal("cancel", "mail", "a", "b", "--by", "ada")

    assert str(refused) == "not held by mail: b"
    assert mail.depth().visible == 0


@pytest.mark.parametrize(
    ("seconds_ago", "queues", "options", "problem"),
    [
        (0, '["mail"]', [], ""),
        (0, '["mail"]', ["--queue", "mail"], ""),
        (100, '["mail"]', [], "no worker is alive"),
        (100, '["mail"]', ["--no-workers"], ""),
        (0, '["other"]', ["--queue", "mail"], "mail: no worker is alive that serves it"),
        (0, '["mail"]', ["--oldest", "0"], "mail: a task has been visible for"),
        (0, '["other"]', ["--worker", "w1"], ""),
        (0, '["mail"]', ["--worker", "w2"], "the worker 'w2' isn't alive"),
    ],
)
def test_health_is_for_probes(
    mail: Queue, seconds_ago: float, queues: str, options: list[str], problem: str
) -> None:
    a_worker(mail, seconds_ago=seconds_ago, queues=queues)
    mail.enqueue({})

    if problem:
        assert problem in str(refusal("health", *options))
    else:
        assert "healthy (mail" in run("health", *options)


def test_of_several_databases_health_asks_each_for_what_is_its_own(settings: Any) -> None:
    """That a queue or a worker is in one of them is no fault of the others."""
    settings.TASKS = {
        "one": backend("default", ["orders"]),
        "two": backend("sqlite", ["mail"]),
    }
    a_worker(Queue("mail"))

    assert run("health", "--queue", "mail") == "sqlite: healthy (mail)\n"
    assert "sqlite: healthy (mail)" in run("health", "--worker", "w1")
    assert str(refusal("health")) == "default: no worker is alive"
    for several in (["--worker", "w2"], ["--queue", "other"]):
        assert len(str(refusal("health", *several)).split("; ")) == 2


def test_a_paused_queue_may_wait(mail: Queue) -> None:
    a_worker(mail)
    mail.enqueue({})
    mail.pause()

    assert "healthy" in run("health", "--oldest", "0")


def test_a_database_that_is_away_is_unhealthy(settings: Any) -> None:
    settings.TASKS = {"one": backend("default", ["mail"])}

    assert "DATABASES has" in str(refusal("health", "--database", "nowhere"))
