"""Who is next: priority and time inside a tenant, rotation between tenants."""

from __future__ import annotations

from concurrent.futures import wait
from datetime import timedelta
from functools import partial

from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue

from ..clock import FakeClock
from .base import Chapter, MakeQueue, across_threads, claim_ids, claim_one, leased
from .threads import in_thread


def fill(queue: Queue, **tenants: int) -> None:
    """So many tasks for each tenant: x1, x2, ..., y1, ..."""
    for tenant, count in tenants.items():
        queue.enqueue_many(
            {"payload": {}, "id": f"{tenant}{n + 1}", "tenant": tenant} for n in range(count)
        )


def one_by_one(queue: Queue, count: int) -> list[str]:
    return [id for _ in range(count) for id in claim_ids(queue)]


def claim_all(queue: Queue) -> list[Lease]:
    leases: list[Lease] = []
    while claimed := queue.claim(worker="w", limit=5):
        leases += claimed
    return leases


class Order(Chapter):
    """Chapter 5 of the guarantees."""

    def test_first_come_first_served(self, queue: Queue) -> None:
        """G25"""
        fill(queue, x=3)

        assert one_by_one(queue, 3) == ["x1", "x2", "x3"]

    def test_inside_a_tenant_priority_then_time_then_enqueue_order(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G25: a task that waited takes its place as of when it became visible."""
        queue.enqueue({}, id="delayed", run_after=timedelta(seconds=3))
        queue.enqueue({}, id="low", priority=-100)
        queue.enqueue({}, id="high", priority=100)
        queue.enqueue({}, id="b")
        queue.enqueue({}, id="a")
        clock.set(3)
        queue.enqueue({}, id="new")

        assert one_by_one(queue, 9) == ["high", "b", "a", "delayed", "new", "low"]

    def test_retried_lapsed_and_redriven_tasks_wait_their_turn(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G25: among those that came meanwhile."""
        leased(queue, id="lapsed", visibility=10)
        queue.fail(leased(queue, id="retried"), "no", retry_after=20)
        queue.fail(leased(queue, id="dead"), "no", retryable=False)
        for now in (5, 15, 25):
            clock.set(now)
            queue.enqueue({}, id=f"at {now}")
        clock.set(30)
        queue.redrive(["dead"])

        expected = ["at 5", "lapsed", "at 15", "retried", "at 25", "dead"]
        assert claim_ids(queue, limit=9) == expected

    def test_tenants_take_turns_claim_by_claim(self, make: MakeQueue) -> None:
        """G26: the turn is the queue's, not that of whoever claims."""
        fill(make(), x=4, y=1, z=2)
        workers = [make(), make()]

        served = [id for _ in range(4) for queue in workers for id in claim_ids(queue)]

        assert served == ["x1", "y1", "z1", "x2", "z2", "x3", "x4"]

    def test_a_single_task_is_served_within_one_lap_of_a_crowd(self, queue: Queue) -> None:
        """G26"""
        fill(queue, x=50)
        claim_one(queue)
        fill(queue, y=1)

        assert "y1" in one_by_one(queue, 2), "a tenant with many tasks starves the other"

    def test_the_rotation_goes_on_behind_a_tenant_that_has_nothing_left(self, queue: Queue) -> None:
        """G26"""
        fill(queue, x=2, y=1, z=2)
        assert one_by_one(queue, 2) == ["x1", "y1"]
        fill(queue, w=1)

        assert one_by_one(queue, 4) == ["z1", "w1", "x2", "z2"]

    def test_tenants_rotate_by_the_bytes_of_their_names(self, queue: Queue) -> None:
        """G26, G35"""
        tenants = ["", "B", "a", "b", "é", "\uffee", "\U0001f4e6"]
        for tenant in reversed(tenants):
            queue.enqueue({}, id=f"of {tenant}", tenant=tenant)

        assert one_by_one(queue, 9) == [f"of {tenant}" for tenant in tenants]

    def test_priority_never_crosses_tenants(self, queue: Queue) -> None:
        """G26"""
        fill(queue, x=1)
        for id in ("y1", "y2"):
            queue.enqueue({}, id=id, tenant="y", priority=100)

        assert one_by_one(queue, 3) == ["x1", "y1", "y2"]

    def test_a_claim_of_many_interleaves_as_claims_of_one_would(self, queue: Queue) -> None:
        """G26"""
        fill(queue, x=5, y=2, z=1)

        assert claim_ids(queue, limit=3) == ["x1", "y1", "z1"]
        assert claim_ids(queue, limit=2) == ["x2", "y2"]
        assert claim_ids(queue, limit=9) == ["x3", "x4", "x5"]

    def test_queues_have_turns_of_their_own(self, make: MakeQueue) -> None:
        """G26"""
        for name in ("a", "b"):
            fill(make(name), x=1, y=1)
        claim_one(make("a"))

        assert claim_ids(make("b")) == ["x1"]

    @across_threads
    def test_many_who_ask_at_once_never_get_the_same_task(self, make: MakeQueue) -> None:
        """G7, G27: 8 claimers, 200 tasks, 200 leases, 200 tokens; nobody is turned away."""
        fill(make(), x=120, y=80)

        claimers = [in_thread(partial(claim_all, make())) for _ in range(8)]

        assert not wait(claimers, timeout=30).not_done, "they block each other"
        leases = [lease for claimer in claimers for lease in claimer.result()]
        assert len(leases) == 200
        assert len({lease.life for lease in leases}) == 200
        assert len({lease.token for lease in leases}) == 200
