"""What the command's options mean, and what it answers where it can't work."""

from __future__ import annotations

import logging
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import QuerySet

from django_leasequeue.compat import TASKS_LOGGER
from django_leasequeue.lease import Lease
from django_leasequeue.management.commands.leasequeue_worker import log_somewhere
from django_leasequeue.models import Task
from django_leasequeue.queue import Queue
from django_leasequeue.wakeups import Sleeper
from django_leasequeue.worker.names import new_name
from tests.databases import on_all
from tests.waiting import idles, wait_for

from . import tasks
from .conftest import Site

databases = on_all


@databases
def test_queues_are_served_in_the_order_they_are_named(site: Site) -> None:
    site.enqueue(tasks.add, 1, 1, queue_name="work")
    site.enqueue(tasks.add, 2, 2, queue_name="urgent")

    site.drain(queues=["urgent", "work"])

    assert tasks.runs == [(2, 2), (1, 1)]


@databases
def test_only_the_named_queues_are_served(site: Site) -> None:
    site.enqueue(tasks.add, 1, 1, queue_name="work")

    site.drain(queues=["urgent"])

    assert tasks.runs == []


@databases
def test_max_tasks_ends_the_worker_after_that_many(site: Site) -> None:
    for number in range(5):
        site.enqueue(tasks.add, number, 0)

    call_command("leasequeue_worker", backend=site.alias, max_tasks=2, threads=3)

    assert len(tasks.runs) == 2
    assert site.queue.depth().visible == 3


@databases
def test_drain_leaves_what_is_scheduled(site: Site) -> None:
    site.enqueue(tasks.add, 1, 1)
    site.enqueue(tasks.add, 2, 2, run_after=timedelta(hours=1))

    site.drain()

    assert tasks.runs == [(1, 1)]
    assert site.queue.depth().scheduled == 1


@databases
def test_threads_run_tasks_side_by_side(site: Site) -> None:
    for _ in range(3):
        site.enqueue(tasks.wait_at_the_gate)

    with site.worker(threads=3):
        wait_for(lambda: len(tasks.runs) == 3)


@databases
def test_a_sleeping_worker_is_woken_by_an_enqueue(site: Site) -> None:
    with site.worker(poll_interval=300.0):
        for number in range(3):
            site.enqueue(tasks.add, number, 0)
            wait_for(lambda count=number + 1: len(tasks.runs) == count)  # type: ignore[misc]


@databases
def test_a_worker_with_a_free_thread_does_not_spin(site: Site) -> None:
    """One task runs, one thread is free, nothing is visible: it sleeps."""
    site.enqueue(tasks.wait_at_the_gate)

    with site.worker(threads=2, poll_interval=300.0) as worker:
        wait_for(lambda: tasks.runs == ["at the gate"])
        wait_for(lambda: worker.sleeper in asleep())
        assert idles()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a worker does from here on."""
    steps: list[str] = []
    claim, look, leave = Queue.claim, Queue.outlook, Sleeper.__exit__

    def claimed(queue: Queue, **how: Any) -> list[Lease]:
        leases = claim(queue, **how)
        if queue.name == "work":
            steps.append("leased" if leases else "nothing")
        return leases

    def looked(queue: Queue) -> tuple[bool, float]:
        if queue.name == "work":
            steps.append("looked")
        return look(queue)

    def withdrawn(sleeper: Sleeper, *error: Any) -> None:
        steps.append("withdrawn")
        leave(sleeper, *error)

    monkeypatch.setattr(Queue, "claim", claimed)
    monkeypatch.setattr(Queue, "outlook", looked)
    monkeypatch.setattr(Sleeper, "__exit__", withdrawn)
    return steps


@databases
def test_who_is_woken_claims_before_anything_else(site: Site, steps: list[str]) -> None:
    """To withdraw first is a round trip for which whoever enqueued would wait."""
    with site.worker():
        wait_for(lambda: steps[:2] == ["nothing", "looked"])
        site.enqueue(tasks.add, 1, 2)
        wait_for(lambda: {"leased", "withdrawn"} <= set(steps))

    assert steps.index("leased") < steps.index("withdrawn")


@databases
def test_an_idle_worker_stays_announced_and_asks_once_each_poll_interval(
    site: Site, steps: list[str]
) -> None:
    with site.worker(poll_interval=0.01):
        wait_for(lambda: len(steps) > 5)
        asked = steps.copy()

    assert asked == ["nothing", *["looked"] * (len(asked) - 1)]


def asleep() -> list[object]:
    from django_leasequeue.wakeups import asleep as sleepers  # noqa: PLC0415

    return list(sleepers)


@pytest.mark.django_db
def test_inside_a_test_case_it_says_what_to_use_instead() -> None:
    with pytest.raises(CommandError, match="run_tasks"):
        call_command("leasequeue_worker", backend="worker on default", drain=True)


@databases
def test_tables_that_are_not_up_to_date_are_refused_in_one_line(site: Site) -> None:
    """G46"""
    recorder = MigrationRecorder(connections[site.using])
    recorder.record_unapplied("leasequeue", "0002_append_only")
    try:
        with pytest.raises(CommandError, match=r"0002_append_only.*: manage.py migrate leaseq"):
            site.drain()
    finally:
        recorder.record_applied("leasequeue", "0002_append_only")


@databases
def test_a_worker_does_not_start_where_tokens_would_be_given_out_again(site: Site) -> None:
    """G65"""
    site.enqueue(tasks.add, 1, 1)
    QuerySet(Task, using=site.using).update(token=10**6)

    with pytest.raises(CommandError, match=r"up to 1000000 were given out.*advance-tokens"):
        site.drain()
    call_command("leasequeue", "advance-tokens", database=site.using, stdout=StringIO())
    site.drain()

    assert site.queue.depth().visible == 0


def test_another_backend_is_refused_by_name() -> None:
    with pytest.raises(CommandError, match="worker on default"):
        call_command("leasequeue_worker", backend="nonsense")


def test_a_queue_that_is_not_the_backends_is_refused() -> None:
    with pytest.raises(CommandError, match=r"wrok: .* urgent, work"):
        call_command("leasequeue_worker", backend="worker on default", queues=["wrok"])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--threads", "0"),
        ("--threads", "1.5"),
        ("--max-tasks", "-1"),
        ("--grace", "nan"),
        ("--grace", "-1"),
        ("--poll-interval", "inf"),
        ("--poll-interval", "0"),
    ],
)
def test_a_number_out_of_bounds_is_refused(option: str, value: str) -> None:
    """G36"""
    with pytest.raises(CommandError, match=f"{option}: (must be at least|invalid int)"):
        call_command("leasequeue_worker", f"{option}={value}")


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 201])
def test_a_worker_name_that_can_t_be_one_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match="--name: worker "):
        call_command("leasequeue_worker", "--name", name)


def test_names_made_up_are_never_used_twice() -> None:
    assert new_name() != new_name()


@databases
def test_it_logs_to_stderr_where_the_site_logs_nowhere(
    site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = logging.getLogger("django_leasequeue")
    monkeypatch.setattr(ours, "propagate", False)
    monkeypatch.setattr(ours, "handlers", [])

    site.drain()

    said = capfd.readouterr().err
    assert "started worker=" in said
    assert f"threads=1 database={connections[site.using].vendor}" in said


@pytest.mark.parametrize(
    ("own", "then"), [(logging.NOTSET, logging.WARNING), (logging.INFO, logging.INFO)]
)
def test_django_s_own_lines_come_where_the_site_gives_their_logger_a_level(
    monkeypatch: pytest.MonkeyPatch, own: int, then: int
) -> None:
    djangos = logging.getLogger(TASKS_LOGGER)
    monkeypatch.setattr(djangos, "level", own)
    log_somewhere(1)
    assert djangos.level == then


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 101])
def test_a_queue_name_that_can_t_be_one_is_refused_in_one_line(settings: Any, name: str) -> None:
    settings.TASKS = {"default": settings.TASKS["default"] | {"QUEUES": []}}

    with pytest.raises(CommandError, match=r"^queue "):
        call_command("leasequeue_worker", queues=[name], drain=True)
