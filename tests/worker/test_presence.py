"""What a worker tells of itself, and that nobody's work depends on it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError

from django_leasequeue import registry
from django_leasequeue.models import Worker
from django_leasequeue.records import Paused
from django_leasequeue.registry import workers
from django_leasequeue.testing import MemoryQueue
from django_leasequeue.wakeups import LocalSleeper, asleep
from django_leasequeue.worker.deliveries import Deliveries
from django_leasequeue.worker.presence import Presence
from tests.databases import on_all
from tests.waiting import wait_for

from . import tasks
from .conftest import Site

pytestmark = on_all


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_leasequeue.worker.upkeep.IDLE_SECONDS", 0.02)
    monkeypatch.setattr(registry, "TELL_SECONDS", 0.0)


def row(site: Site, name: str, seconds_ago: float) -> None:
    at = site.queue.now() - timedelta(seconds=seconds_ago)
    facts = {"host": "h", "pid": 1, "threads": 1, "queues": "[]", "tasks": "[]"}
    Worker.objects.using(site.using).create(name=name, started_at=at, seen_at=at, **facts)


def test_a_worker_is_known_while_it_lives_with_what_it_does(site: Site) -> None:
    result = site.enqueue(tasks.wait_at_the_gate)

    with site.worker(threads=2) as worker:
        wait_for(lambda: any(known.tasks for known in workers(site.using)))
        [known] = workers(site.using)
        tasks.gate.set()
        wait_for(lambda: not workers(site.using)[0].tasks)

    assert (known.name, known.threads, known.alive) == (worker.name, 2, True)
    assert known.queues == ("urgent", "work")
    [task] = known.tasks
    assert (task.id, task.queue, task.attempt) == (result.id, "work", 1)
    assert known.started_at <= task.since <= known.seen_at
    assert workers(site.using) == []


def test_a_silent_worker_shows_as_gone_and_is_forgotten_in_time(site: Site) -> None:
    row(site, "fresh", 5)
    row(site, "gone", registry.GONE_SECONDS + 5)
    row(site, "long gone", registry.FORGOTTEN.total_seconds() + 5)

    alive = {worker.name: worker.alive for worker in workers(site.using)}
    with site.worker():
        wait_for(lambda: not Worker.objects.using(site.using).filter(name="long gone").exists())

    assert alive == {"fresh": True, "gone": False}
    assert [worker.name for worker in workers(site.using)] == ["fresh", "gone"]


def test_a_lost_registry_loses_no_task_and_is_filled_again(site: Site) -> None:
    """G68"""
    with site.worker():
        wait_for(lambda: workers(site.using) != [])
        Worker.objects.using(site.using).all().delete()
        site.enqueue(tasks.add, 1, 1)
        wait_for(lambda: tasks.runs == [(1, 1)] and workers(site.using) != [])


def test_a_registry_that_can_t_be_written_stops_no_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G68"""

    def broken(*_: object, **__: object) -> None:
        raise OperationalError("permission denied")

    monkeypatch.setattr(registry, "tell", broken)
    site.enqueue(tasks.add, 1, 1)

    site.drain()

    assert tasks.runs == [(1, 1)]


def test_a_worker_says_that_its_queue_is_paused_and_resumed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.queue.pause(by="ada", reason="bad deploy")
    site.enqueue(tasks.add, 1, 1)

    with site.worker():
        wait_for(lambda: "paused queue=work by=ada reason=bad deploy" in caplog.text)
        assert tasks.runs == []
        site.queue.resume()
        wait_for(lambda: tasks.runs == [(1, 1)] and "resumed queue=work" in caplog.text)


def test_a_worker_mutes_what_is_paused_until_it_is_resumed(site: Site) -> None:
    site.queue.pause()

    with site.worker() as worker:
        wait_for(lambda: worker.sleeper.muted == {"work"})
        site.queue.resume()
        wait_for(lambda: worker.sleeper.muted == set())


def test_what_is_paused_mutes_and_wakes_the_sleeper_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Though the notification of a pause or its end may have been lost."""
    caplog.set_level("INFO", "django_leasequeue")
    queue = MemoryQueue("emails")
    sleeper = LocalSleeper(queue.using, [queue.name])
    presence = Presence("w", [queue], 1, Deliveries(1, lambda: None), sleeper)
    paused = Paused(at=queue.now(), by=None, reason=None)
    seen = []
    for pauses in ({"emails": paused, "other": paused},) * 2 + ({"other": paused},) * 2:
        presence.notice(pauses)
        seen.append((set(sleeper.muted), sleeper.woken.is_set()))
        sleeper.woken.clear()

    assert seen == [({"emails"}, True), ({"emails"}, False), (set(), True), (set(), False)]
    assert [record.getMessage() for record in caplog.records] == [
        "paused queue=emails by=somebody reason=",
        "resumed queue=emails",
    ]


def test_a_resumption_wakes_a_sleeping_worker(site: Site) -> None:
    """G28: Within one process on every database; on PostgreSQL from another one, too."""
    site.queue.pause()
    site.enqueue(tasks.add, 1, 1)

    with site.worker(poll_interval=300.0) as worker:
        wait_for(lambda: worker.sleeper in set(asleep))
        site.queue.resume()
        wait_for(lambda: tasks.runs == [(1, 1)])
