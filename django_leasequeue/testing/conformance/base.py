"""What every chapter of the suite needs: queues of one store, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import pytest

from django_leasequeue.errors import LeaseLostError, LostReason
from django_leasequeue.lease import Lease
from django_leasequeue.policy import QueuePolicy
from django_leasequeue.queue import Queue

from ..clock import FakeClock

MakeQueue = Callable[..., Queue]
POLICY: Final = QueuePolicy(visibility=30, max_attempts=3, max_lease=70, backoff_base=4)


class Chapter:
    """Some of the promises; see WorkQueueConformance."""

    patience_seconds = 10.0  # for what another thread is to do

    def make_queue(
        self, name: str = "emails", *, policy: QueuePolicy | None = None, clock: FakeClock
    ) -> Queue:
        """The queue *name*. All that one test opens share their tasks' store."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> FakeClock:
        """The time of all queues of the test."""
        return FakeClock()

    @pytest.fixture
    def make(self, clock: FakeClock) -> Iterator[MakeQueue]:
        """Opens queues, and closes them at the end of the test."""
        opened: list[Queue] = []

        def make(name: str = "emails", policy: QueuePolicy | None = POLICY) -> Queue:
            opened.append(self.make_queue(name, policy=policy, clock=clock))
            return opened[-1]

        yield make
        for queue in opened:
            queue.close()

    @pytest.fixture
    def queue(self, make: MakeQueue) -> Queue:
        """An empty queue: V = 30, M = 3, L = 70, backoff 4, 8, ..."""
        return make()

    @pytest.fixture
    def committed(self) -> None:
        """Override it where threads need real commits, as Django's transactional tests have."""


across_threads = pytest.mark.usefixtures("committed")


def claim_one(queue: Queue, worker: str = "w") -> Lease:
    """The lease on the task that is next."""
    leases = queue.claim(worker=worker, limit=1)
    assert leases, "a task is visible, but none was delivered"
    return leases[0]


def leased(queue: Queue, worker: str = "w", **options: Any) -> Lease:
    """The lease on a new task; nothing else may be visible."""
    queue.enqueue({}, **options)
    return claim_one(queue, worker)


def claim_ids(queue: Queue, limit: int = 1) -> list[str]:
    return [lease.id for lease in queue.claim(worker="w", limit=limit)]


def refusal(call: Callable[[], object]) -> LostReason | None:
    """Why *call* was refused its lease; None where it went through."""
    try:
        call()
    except LeaseLostError as lost:
        return lost.reason
    return None


def counts(queue: Queue) -> tuple[int, int, int, int]:
    """Visible, scheduled, leased, dead."""
    depth = queue.depth()
    return depth.visible, depth.scheduled, depth.leased, depth.dead


def second(clock: FakeClock, instant: datetime) -> float:
    """*instant* in seconds since the test began."""
    return (instant - clock.start).total_seconds()


def bury(queue: Queue, id: str = "a", tenant: str = "", key: str | None = None) -> Lease:
    """Make a dead letter of a new task; nothing else may be visible. Its last lease."""
    queue.enqueue({"n": 1}, id=id, tenant=tenant, dedupe_key=key)
    lease = claim_one(queue)
    queue.fail(lease, "refused", retryable=False)
    return lease
