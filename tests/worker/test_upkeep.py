"""What a worker does for the log beside its tasks."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from django_leasequeue import batches
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.queue import Queue
from django_leasequeue.retention import Walk
from django_leasequeue.transitions import Kind
from django_leasequeue.worker import upkeep
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for

from . import tasks
from .conftest import Site

pytestmark = on_all


def test_refused_calls_are_counted_in_the_database(site: Site) -> None:
    """G59: Also the last ones, of a worker that ends."""
    result = site.enqueue(tasks.check_until_refused)

    with site.worker():
        wait_for(lambda: tasks.runs == ["running"])
        site.queue.cancel(result.id)
        tasks.gate.set()
        wait_for(lambda: site.queue.depth().leased == 0)

    assert site.queue.stats().refusals >= 1


def test_refusals_of_other_workers_leases_are_theirs_to_count(site: Site) -> None:
    site.queue.enqueue(1)
    [lease] = site.queue.claim(worker="somebody else")
    site.queue.complete(lease)

    with site.worker() as worker:
        wait_for(lambda: worker.ready)
        assert site.queue.complete_many([(lease, None)]) == [lease]
        site.queue.refused(lease)

    assert site.queue.stats().refusals == 0


def after_a_refusal(site: Site) -> upkeep.Upkeep:
    site.queue.enqueue(1)
    [lease] = site.queue.claim(worker="w")
    keeper = upkeep.Upkeep("w", [site.queue], {})
    keeper.count(None, lease)
    return keeper


def test_refusals_wait_for_a_database_that_is_away(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = after_a_refusal(site)
    with monkeypatch.context() as away:
        away.setattr(keeper.store, "tally", broken)
        assert keeper.turn() == upkeep.OUTAGE_PAUSE_SECONDS
        [told] = caplog.records
        assert (told.message, told.exc_info) == (
            "upkeep failed, to be tried again: permission denied",
            None,
        )

    assert keeper.turn() == upkeep.IDLE_SECONDS
    keeper.turn()

    assert site.queue.stats().refusals == 1


def test_a_batch_that_nobody_here_knows_how_to_do_ends_no_worker(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer release's, say, while the workers are replaced one by one."""
    site.queue.enqueue(1)
    batches.begin(Task.objects.using(site.using).all(), verb="reverse", by="ada")

    assert upkeep.Upkeep("w", [site.queue], {}).turn() == upkeep.OUTAGE_PAUSE_SECONDS
    assert "upkeep failed" in caplog.text
    assert "Traceback" in caplog.text


def test_a_worker_that_ends_says_which_refusals_it_could_not_count(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = after_a_refusal(site)
    keeper.stop()
    monkeypatch.setattr(keeper.store, "tally", broken)

    in_thread(keeper.run).result(PATIENCE)

    assert "refusals that were not counted: permission denied" in caplog.text


def test_pruning_takes_a_third_of_the_time_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = upkeep.Upkeep("w", [site.queue], {Kind.ACKED: 1.0})
    keeper.began_at = 90.0
    ticks = iter([100.0, 103.0])
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(Walk, "step", lambda walk, batch: (1000, True))

    assert keeper.turn() == 6


def test_what_is_behind_is_caught_up_with_by_larger_batches(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL; elsewhere others could not write meanwhile."""
    keeper = upkeep.Upkeep("w", [site.queue], {Kind.ACKED: 1.0})
    batches: list[int] = []

    def step(walk: Walk, batch: int) -> tuple[int, bool]:
        batches.append(batch)
        return 0, len(batches) < 6

    monkeypatch.setattr(Walk, "step", step)
    for _ in range(7):
        keeper.turn()

    growing = [1000, 2000, 4000, 8000, 10_000, 10_000, 1000]
    assert batches == (growing if site.using == "default" else [1000] * 7)


def test_the_log_of_queues_that_it_does_not_serve_is_not_its_to_prune(site: Site) -> None:
    for queue in (site.queue, Queue("elsewhere", using=site.using)):
        queue.enqueue(1)
        queue.complete(queue.claim(worker="w")[0])

    upkeep.Upkeep("w", [site.queue], {Kind.ACKED: 1e-6}).turn()

    log = TaskTransition.objects.using(site.using)
    assert {row.queue for row in log.all()} == {"elsewhere"}


def test_a_walk_begins_anew_every_day(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """G57: What was committed behind it is found then."""
    keeper = upkeep.Upkeep("w", [site.queue], {Kind.ACKED: 1e-6})
    for days in (0.9, 1.1):
        site.queue.enqueue(1)
        site.queue.complete(site.queue.claim(worker="w")[0])
        assert keeper.walk
        keeper.walk.positions |= dict.fromkeys(keeper.walk.positions, 2**62)  # behind all there is
        keeper.began_at = time.monotonic() - days * 86_400
        keeper.turn()

    assert site.kinds() == []


def test_a_database_that_refuses_to_prune_stops_no_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.alias = f"forgetful {site.alias}"
    monkeypatch.setattr(Walk, "step", broken)
    site.enqueue(tasks.add, 1, 1)

    site.drain()

    assert site.kinds() == ["enqueued", "leased", "acked"]
    wait_for(lambda: "upkeep failed, to be tried again: permission denied" in caplog.text)


def broken(*_: object, **__: object) -> None:
    raise OperationalError("permission denied")
