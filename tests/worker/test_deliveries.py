"""The leases in a worker's hands, without a database: who starts, who waits, who comes back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

from django_leasequeue import QueuePolicy
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.worker.deliveries import PATIENCE_SECONDS, Deliveries, Delivery
from tests.waiting import in_thread


def deliveries(**options: Any) -> Deliveries:
    return Deliveries(emptied=lambda: None, **{"threads": 1} | options)


def claimed(count: int, *, kind: type[Delivery] = Delivery, **options: Any) -> list[Delivery]:
    """Deliveries of so many tasks, at their first attempt."""
    queue = MemoryQueue("q", policy=QueuePolicy(max_attempts=3), clock=FakeClock())
    queue.enqueue_many({"payload": n} for n in range(count))
    leases = queue.claim(worker="w", limit=count)
    return [kind(queue=queue, lease=lease, sent_at=time.monotonic(), **options) for lease in leases]


def test_a_task_may_start_while_somebody_asks_for_room() -> None:
    """Once the worker ended there: what runs had changed under the question."""
    ours = deliveries(threads=3)
    taken: list[Future[Delivery | None]] = []

    class Asked(Delivery):
        def seconds_run(self) -> float:
            """Somebody else takes a task; he should have to wait for the one who asks."""
            taken.append(in_thread(ours.take))
            threading.Event().wait(0.02)
            return 0.0

    first, second = claimed(2, kind=Asked)
    ours.add([first, second])
    ours.take()

    ours.room()

    assert taken[0].result(5) is second
    ours.close()


def test_a_full_loop_takes_no_room_from_the_threads() -> None:
    ours = deliveries(coroutines=1)
    on_the_loop, waiting, *without = claimed(4, coroutine=True)

    refused = ours.add([on_the_loop, waiting, *without])

    assert refused == without
    assert ours.room() == 1


def test_what_waits_behind_a_slow_task_comes_back_though_nothing_more_is_to_be_claimed() -> None:
    ours = deliveries()
    slow, behind = claimed(2)
    behind.claimed_at -= PATIENCE_SECONDS
    ours.add([slow, behind])
    ours.take()

    assert ours.take_back() == [behind]
    assert ours.take_back() == []
