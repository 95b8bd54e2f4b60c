"""B47: rotation is remembered between claims, processes and restarts, not only inside a batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django_leasequeue import Queue

MakeQueue = Callable[..., Queue]


def crowd(queue: Queue, size: int = 300) -> None:
    queue.enqueue_many(
        {"payload": {}, "tenant": "x", "priority": 100, "id": f"x{n}"} for n in range(size)
    )
    queue.enqueue({}, tenant="y", id="y", priority=-100)
    queue.enqueue({}, tenant="z", id="z", priority=-100)


def test_a_single_task_is_served_within_one_lap_of_claims_of_one(make_queue: MakeQueue) -> None:
    """G26"""
    queue = make_queue()
    crowd(queue)

    served = [queue.claim(worker="w")[0].tenant for _ in range(6)]

    assert served == ["x", "y", "z", "x", "x", "x"]


def test_the_turn_is_kept_by_the_queue_not_by_the_claimer(make_queue: MakeQueue) -> None:
    """G26"""
    crowd(make_queue())

    served = [make_queue().claim(worker=f"w{n}")[0].tenant for n in range(4)]

    assert served == ["x", "y", "z", "x"]


def test_a_batch_interleaves_and_tops_up_from_who_has_more(make_queue: MakeQueue) -> None:
    """G26"""
    queue = make_queue()
    crowd(queue)

    batch = [lease.tenant for lease in queue.claim(worker="w", limit=8)]

    assert sorted(batch) == ["x"] * 6 + ["y", "z"]


def test_b46_tasks_that_are_not_due_cost_no_turn_and_block_nobody(make_queue: MakeQueue) -> None:
    queue = make_queue()
    year = timedelta(days=365)
    queue.enqueue_many(
        {"payload": {}, "tenant": tenant, "priority": 100, "run_after": year}
        for tenant in ("a", "b", "x")
        for _ in range(50)
    )
    queue.enqueue_many({"payload": {}, "tenant": "x", "priority": -100} for _ in range(10))

    assert {lease.tenant for lease in queue.claim(worker="w", limit=100)} == {"x"}
    assert queue.depth().scheduled == 150
