"""B46: what waits for its time stands in nobody's way: not in the order, not in the work done."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from tests.conftest import NIGHTLY, on_databases

MakeQueue = Callable[..., Queue]

YEAR = timedelta(days=365)


def crowd(queue: Queue, size: int) -> None:
    """*size* tasks a year ahead, as many waiting out a retry, and a tenant that only waits."""
    retried = [{"payload": {}, "tenant": "x", "priority": 100} for _ in range(size)]
    queue.enqueue_many(retried)
    while leases := queue.claim(worker="w", limit=min(size, 1000)):
        for lease in leases:
            queue.fail(lease, "not yet", retry_after=86_400)
    queue.enqueue_many(
        {"payload": {}, "tenant": tenant, "priority": 100, "run_after": YEAR}
        for tenant in ("x", "waiting")
        for _ in range(size)
    )


def ready(queue: Queue) -> None:
    queue.enqueue_many(
        {"payload": {}, "tenant": "x", "priority": -100, "id": str(n)} for n in range(10)
    )
    queue.enqueue({}, tenant="y", id="y")


def test_the_ready_ones_come_at_once_and_who_only_waits_costs_no_turn(
    make_queue: MakeQueue,
) -> None:
    """G25, G26"""
    queue = make_queue()
    crowd(queue, 50)
    ready(queue)

    ids = [queue.claim(worker="w")[0].id for _ in range(11)]

    assert ids == ["y", *(str(n) for n in range(10))]
    assert queue.claim(worker="w") == []
    assert queue.depth().scheduled == 150


@on_databases
def test_a_claim_asks_no_more_of_the_database(make_queue: MakeQueue) -> None:
    """What each of its statements reads is held by the tests of plans: tests/stores."""
    asked = []
    for name, size in (("small", 10), ("large", 100)):
        queue = make_queue(name)
        crowd(queue, size)
        ready(queue)
        queue.claim(worker="w")
        with CaptureQueriesContext(connections[queue.using]) as made:
            assert queue.claim(worker="w", limit=3)
        asked.append(len(made))

    assert asked[1] == asked[0]


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: make nightly")
@pytest.mark.timeout(1800)
@on_databases
def test_a_hundred_thousand_of_each_make_no_claim_slower(make_queue: MakeQueue) -> None:
    """G26: by the median, not twice as slow as in an empty table."""
    queue = make_queue()
    alone = median_of_claims(queue)
    crowd(queue, 100_000)

    assert median_of_claims(queue) < 2 * alone


def median_of_claims(queue: Queue) -> float:
    queue.enqueue_many({"payload": {}, "tenant": "x", "priority": -100} for _ in range(300))
    took = []
    for _ in range(300):
        start = time.perf_counter()
        [lease] = queue.claim(worker="w")
        took.append(time.perf_counter() - start)
        queue.complete(lease)
    return median(took)
