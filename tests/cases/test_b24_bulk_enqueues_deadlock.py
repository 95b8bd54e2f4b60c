"""B24: bulk calls that meet on the same rows, each in an order of its own, end well for all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from django.db import connections

from django_leasequeue import Queue
from django_leasequeue.models import Task, TaskTransition
from tests.conftest import NIGHTLY, on_databases
from tests.waiting import PATIENCE, in_thread

MakeQueue = Callable[..., Queue]
ROUNDS = 200 if NIGHTLY else 5
NUMBERS = range(1, 51)


def timed(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


@on_databases
@pytest.mark.timeout(1200)
def test_no_deadlock_reaches_a_caller_and_no_key_is_lost_or_doubled(make_queue: MakeQueue) -> None:
    """G3, G4"""
    queue = make_queue()
    # SQLite has one lock, so no order to take them in, and whoever waits for it draws lots: in
    # some hundred rounds somebody loses for longer than the driver's patience.
    rounds = 5 if connections[queue.using].vendor == "sqlite" else ROUNDS

    def enqueue(numbers: Sequence[int]) -> list[float]:
        new = [{"payload": {}, "id": f"i{n}", "dedupe_key": f"k{n}"} for n in numbers]
        return [timed(lambda: queue.enqueue_many(new)) for _ in range(rounds)]

    def work() -> list[float]:
        def step() -> None:
            queue.complete_many((lease, None) for lease in queue.claim(worker="w", limit=20))

        return [timed(step) for _ in range(rounds * 3)]

    def cancel() -> list[float]:
        ids = [f"i{n}" for _ in range(rounds) for n in NUMBERS[::5]]
        return [timed(lambda id=id: queue.cancel(id)) for id in ids]  # type: ignore[misc]

    calls = (lambda: enqueue(NUMBERS), lambda: enqueue(NUMBERS[::-1]), work, cancel)
    threads = [in_thread(call) for call in calls]
    took = [seconds for thread in threads for seconds in thread.result(1000)]

    assert max(took) < PATIENCE
    log = TaskTransition.objects.using(queue.using)
    happened = Counter(map(str, log.values_list("kind", flat=True)))
    held = Task.objects.using(queue.using).count()
    assert happened["enqueued"] + happened["duplicate"] == 2 * rounds * len(NUMBERS)
    assert happened["enqueued"] == held + happened["acked"] + happened["cancelled"]
