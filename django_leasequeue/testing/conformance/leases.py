"""Who may work on a task, until when, and what becomes of those who come too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from django_leasequeue.errors import LostReason
from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue

from ..clock import FakeClock
from .base import Chapter, MakeQueue, claim_ids, claim_one, counts, leased, refusal, second

CALLS: Final[dict[str, Callable[[Queue, Lease], object]]] = {
    "check": lambda queue, lease: queue.check(lease),
    "heartbeat": lambda queue, lease: queue.heartbeat(lease, details="late"),
    "complete": lambda queue, lease: queue.complete(lease),
    "fail": lambda queue, lease: queue.fail(lease, "refused"),
    "release": lambda queue, lease: queue.release(lease),
}
each_call = pytest.mark.parametrize("call", CALLS)


class Leases(Chapter):
    """Chapter 2 of the guarantees."""

    def test_a_lease_says_what_a_worker_needs(self, queue: Queue, clock: FakeClock) -> None:
        """G7"""
        queue.enqueue({})
        clock.set(7)

        lease = claim_one(queue, "w7")

        assert (lease.worker, lease.attempt, lease.max_attempts) == ("w7", 1, 3)
        assert (second(clock, lease.leased_at), second(clock, lease.deadline)) == (7, 37)
        assert (lease.seconds_left, lease.details) == (30, None)

    def test_a_leased_task_is_not_leased_again(self, make: MakeQueue) -> None:
        """G7: whoever asks, by whichever object."""
        make().enqueue({})
        claim_one(make())

        assert claim_ids(make()) == []

    def test_the_tasks_own_limits_come_before_the_queues(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G7"""
        queue.enqueue({}, visibility=5, max_attempts=9, max_lease=6)

        lease = claim_one(queue)

        assert (second(clock, lease.deadline), lease.max_attempts) == (5, 9)
        clock.set(4)
        assert second(clock, queue.heartbeat(lease).deadline) == 6

    def test_a_lease_is_live_until_its_deadline(self, queue: Queue, clock: FakeClock) -> None:
        """G8: a microsecond before it, every call goes through."""
        lease = leased(queue)
        clock.set(29.999999)

        queue.check(lease)
        assert claim_ids(queue) == []
        queue.complete(lease)

    @each_call
    def test_a_lease_is_over_at_the_very_instant_of_its_deadline(
        self, queue: Queue, clock: FakeClock, call: str
    ) -> None:
        """G8: now == deadline is expired, though nobody else has claimed the task."""
        lease = leased(queue)
        clock.set(30)

        assert refusal(lambda: CALLS[call](queue, lease)) is LostReason.LAPSED
        assert counts(queue) == (1, 0, 0, 0)

    def test_what_the_clock_has_done_is_true_before_anybody_writes_it_down(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G9: listings say so first, and then the next claim finds it."""
        queue.enqueue({}, id="a")
        queue.enqueue({}, id="b", max_attempts=1)
        queue.claim(worker="w", limit=2)
        clock.set(30)

        assert counts(queue) == (1, 0, 0, 1)
        assert [second(clock, letter.at) for letter in queue.dead_letters()] == [30]
        lease = claim_one(queue)
        assert (lease.id, lease.attempt) == ("a", 2)

    def test_tokens_are_unique_over_all_queues_and_grow(
        self, make: MakeQueue, clock: FakeClock
    ) -> None:
        """G10: from lapse to lapse, and whichever object asks."""
        names = ["a", "b", "a", "b"]
        for name in names:
            make(name).enqueue({})

        tokens = []
        for _ in range(3):
            tokens += [claim_one(make(name)).token for name in names]
            clock.advance(30)

        assert len(set(tokens)) == 12, f"a token was given out twice: {tokens}"
        assert tokens == sorted(tokens)

    def test_a_redriven_task_gets_a_larger_token(self, queue: Queue) -> None:
        """G10: what an older worker still holds can never be mistaken for the new lease."""
        before = leased(queue, id="a")
        queue.fail(before, "refused", retryable=False)
        queue.redrive(["a"])

        assert claim_one(queue).token > before.token

    @each_call
    def test_a_superseded_lease_moves_nothing(
        self, queue: Queue, clock: FakeClock, call: str
    ) -> None:
        """G11: the worker that was away meets the one that took over."""
        old = leased(queue, "slow")
        clock.set(30)
        new = claim_one(queue, "next")

        assert refusal(lambda: CALLS[call](queue, old)) is LostReason.SUPERSEDED
        queue.check(new)
        assert queue.heartbeat(new).details is None

    @each_call
    def test_a_finished_lease_moves_nothing(self, queue: Queue, call: str) -> None:
        """G11"""
        lease = leased(queue)
        queue.complete(lease)

        assert refusal(lambda: CALLS[call](queue, lease)) is LostReason.FINISHED

    def test_of_many_leases_only_the_live_ones_are_completed(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G11: two leases of one task in one call included."""
        queue.enqueue_many([{"payload": {}}, {"payload": {}, "visibility": 60}])
        old, other = queue.claim(worker="w", limit=2)
        clock.set(30)
        new = claim_one(queue)

        refused = queue.complete_many([(lease, None) for lease in (new, old, other)])

        assert [lease.token for lease in refused] == [old.token]
        assert counts(queue) == (0, 0, 0, 0)

    def test_a_heartbeat_moves_the_deadline_and_is_capped(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G12: min(now + V, leased at + L); at the cap the lease is over."""
        lease = leased(queue)
        for now, deadline in ((0, 30), (20, 50), (45, 70), (65, 70)):
            clock.set(now)
            assert second(clock, queue.heartbeat(lease).deadline) == deadline, f"at {now}"

        clock.set(70)
        assert refusal(lambda: queue.heartbeat(lease)) is LostReason.CAPPED

    def test_details_stay_until_others_come_and_reach_the_next_attempt(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G13"""
        lease = queue.heartbeat(leased(queue), details={"page": 3})
        assert queue.heartbeat(lease).details == {"page": 3}
        clock.set(30)

        assert claim_one(queue).details == {"page": 3}
