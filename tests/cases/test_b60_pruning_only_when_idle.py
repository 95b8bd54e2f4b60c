"""B60: a queue that is never empty is pruned all the same, and what it holds can be rebuilt."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from django_leasequeue import NewTask, Queue
from django_leasequeue.models import Tally, Task, TaskTransition
from django_leasequeue.retention import Walk
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import FORGETTABLE, fold_all
from django_leasequeue.worker import upkeep
from tests.conftest import MakeQueue, on_databases
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site


def assert_rebuilt(queue: Queue) -> None:
    """Each held task is the fold of what the log still has of it."""
    held = {task.life: task.record for task in Task.objects.using(queue.using)}
    history = queue.store.history(held)
    assert held
    for life, task in held.items():
        assert fold_all(row for row in history if row.life == life) == task


@on_databases
def test_a_busy_queues_log_stays_as_long_as_the_retention(
    make_queue: MakeQueue, clock: FakeClock
) -> None:
    """G57 G58 G59: 20 seconds of it, and what a few more bring until the next turn."""
    queue = make_queue()
    walk = Walk(queue.store, dict.fromkeys(FORGETTABLE, 20.0))
    queue.enqueue("held all the time", id="long", visibility=3600)
    long = queue.claim(worker="w")[0]
    queue.enqueue("never done", id="waiting", dedupe_key="k", run_after=timedelta(days=1))
    logged = longest = 0
    for second in range(100):
        clock.set(second)
        queue.heartbeat(long, details={"page": second} if second < 30 else None)
        for number in range(4):
            queue.enqueue("again", id=str(number), dedupe_key="k")
        queue.enqueue("short")
        queue.complete(queue.claim(worker="w")[0])
        logged += 1 + 4 + 3
        if second % 5 == 0:
            while walk.step(batch=50)[1]:
                pass
            longest = max(longest, TaskTransition.objects.using(queue.using).count())

    assert logged == 800
    assert longest <= (20 + 5 + 1) * 8
    assert_rebuilt(queue)
    assert queue.store.find(long.life).details == '{"page":29}'  # type: ignore[union-attr]
    stats = queue.stats()
    assert (stats.acks, stats.duplicates, stats.lapses, stats.deaths) == (100, 400, 0, 0)


@pytest.fixture
def quick_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 0.05)


@on_all
def test_a_worker_prunes_while_it_works(site: Site, quick_upkeep: None) -> None:
    """G57 G58 G59: Its queue is never empty, one of its tasks runs, another is asked for again."""
    site.alias = f"forgetful {site.alias}"
    queue = site.queue
    queue.enqueue("never done", dedupe_key="k", run_after=timedelta(days=1))
    running = site.enqueue(tasks.wait_at_the_gate)
    enough = threading.Event()

    def keep_busy() -> int:
        sent = 0
        while not enough.is_set():
            if queue.depth().visible < 50:
                sent += len(queue.enqueue_many([an_addition() for _ in range(50)]))
            queue.enqueue("again", dedupe_key="k")
        return sent

    forgotten = Tally.objects.using(site.using).filter(queue="work", count__gt=100)
    with site.worker(threads=2):
        wait_for(lambda: TaskTransition.objects.using(site.using).filter(kind="leased").exists())
        producer = in_thread(keep_busy)
        try:
            wait_for(lambda: forgotten.filter(kind__in=["acked", "duplicate"]).count() == 2)
            depth = queue.depth()
            assert depth.visible + depth.leased > 1, "more than the one at the gate"
        finally:
            enough.set()
            sent = producer.result(PATIENCE)
        wait_for(lambda: queue.stats().acks == sent)  # all but the one at the gate
        assert_rebuilt(queue)
        tasks.gate.set()

    running.refresh()
    assert running.return_value is True


def an_addition() -> NewTask:
    return NewTask(payload={"args": [1, 1], "kwargs": {}}, path="tests.worker.tasks.add")
