"""How an attempt can end, and what follows from it."""

from __future__ import annotations

from functools import partial

import pytest

from django_leasequeue.errors import LostReason
from django_leasequeue.policy import QueuePolicy
from django_leasequeue.queue import Queue
from django_leasequeue.records import Disposition

from ..clock import FakeClock
from .base import Chapter, MakeQueue, bury, claim_ids, claim_one, counts, leased, refusal


class RateLimitedError(Exception):
    """Knows when to come back."""

    retry_after = 7.5


class Endings(Chapter):
    """Chapter 3 of the guarantees."""

    def test_a_completed_task_leaves_for_good(self, queue: Queue, clock: FakeClock) -> None:
        """G15"""
        queue.enqueue({})

        queue.complete(claim_one(queue), result={"sent": 1})

        assert counts(queue) == (0, 0, 0, 0), "an acknowledged task is still there"
        clock.set(1000)
        assert claim_ids(queue) == []

    def test_whatever_happened_is_counted(self, queue: Queue, clock: FakeClock) -> None:
        """G59: what only the clock has done, too."""
        queue.complete(leased(queue, id="done"))
        bury(queue, "a")
        queue.enqueue({}, id="a")
        queue.redrive(["a"])
        claim_one(queue)
        clock.set(30)

        stats = queue.stats()

        assert (stats.acks, stats.lapses, stats.deaths) == (1, 1, 1)
        assert (stats.redrives, stats.duplicates) == (1, 1)

    def test_a_retry_waits_out_its_delay(self, queue: Queue, clock: FakeClock) -> None:
        """G16: to the microsecond, and the next attempt has the next number."""
        assert queue.fail(leased(queue), "no", retry_after=5) is Disposition.RETRYING

        clock.set(4.999999)
        assert claim_ids(queue) == [], "a retry was delivered before its time"
        clock.set(5)
        assert claim_one(queue).attempt == 2

    def test_the_error_knows_best_when_to_retry_else_the_backoff_does(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G16: base * factor ** (attempt - 1)."""
        queue.enqueue({}, id="backoff", max_attempts=4)
        queue.enqueue({}, id="error")
        for lease in queue.claim(worker="w", limit=2):
            queue.fail(lease, RateLimitedError() if lease.id == "error" else "no")

        clock.set(4)
        first = claim_one(queue)
        queue.fail(first, "no")  # the second time: twice as long
        seen = [first.id]
        for now in (7, 7.5, 11.999999, 12):
            clock.set(now)
            seen.append(",".join(claim_ids(queue, limit=9)))

        assert seen == ["backoff", "", "error", "", "backoff"]

    def test_the_last_attempt_that_fails_is_the_last(self, queue: Queue) -> None:
        """G17: M deliveries, not one more."""
        queue.enqueue({})
        dispositions = [queue.fail(claim_one(queue), "no", retry_after=0) for _ in range(3)]

        assert dispositions == ["retrying", "retrying", "dead_lettered"]
        assert claim_ids(queue) == []
        assert counts(queue) == (0, 0, 0, 1)

    def test_the_last_attempt_that_lapses_is_the_last(self, queue: Queue, clock: FakeClock) -> None:
        """G17: a task that kills its workers must not kill them for ever."""
        queue.enqueue({})
        for deadline in (30, 60, 90):
            claim_one(queue)
            clock.set(deadline)

        assert counts(queue) == (0, 0, 0, 1)
        assert claim_ids(queue) == [], "delivered once more than it may be"

    def test_a_failure_for_good_is_not_retried(self, queue: Queue, clock: FakeClock) -> None:
        """G18"""
        queue.enqueue({})

        ended = queue.fail(claim_one(queue), "no", retryable=False)

        assert ended is Disposition.DEAD_LETTERED
        clock.set(1000)
        assert claim_ids(queue) == [], "what failed for good was tried again"
        assert counts(queue) == (0, 0, 0, 1)

    def test_the_policy_may_drop_what_failed_for_good(self, make: MakeQueue) -> None:
        """G18: attempts that ran out are kept all the same."""
        queue = make(policy=QueuePolicy(on_fatal="drop", max_attempts=1))
        queue.enqueue_many([{"payload": {}}, {"payload": {}}])
        fatal, spent = queue.claim(worker="w", limit=2)

        assert queue.fail(fatal, "no", retryable=False) is Disposition.DROPPED
        assert queue.fail(spent, "no") is Disposition.DEAD_LETTERED
        assert counts(queue) == (0, 0, 0, 1)

    def test_a_released_task_has_its_attempt_and_its_place_back(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G19: ready as of when it was, heartbeats notwithstanding."""
        queue.enqueue({}, id="a")
        clock.set(1)
        lease = queue.heartbeat(claim_one(queue))
        queue.enqueue({}, id="b")
        clock.set(2)

        queue.release(lease)

        assert refusal(lambda: queue.check(lease)) is LostReason.FINISHED
        again = claim_one(queue)
        assert (again.id, again.attempt, again.token > lease.token) == ("a", 1, True)

    def test_adoption_gives_back_the_live_leases_of_one_name(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G20: the attempt counts, so that one that was the last is followed by death."""
        mine = leased(queue, "w3", id="mine")
        last = leased(queue, "w3", id="last", max_attempts=1)
        other = leased(queue, "w4", id="other")
        clock.set(5)

        adopted = queue.adopt(worker="w3")

        assert sorted(task.id for task in adopted) == ["last", "mine"]
        for lease in (mine, last):
            assert refusal(partial(queue.complete, lease)) is LostReason.ADOPTED
        queue.check(other)
        assert counts(queue) == (1, 0, 1, 1)
        assert claim_one(queue).attempt == 2

    @pytest.mark.parametrize("state", ["scheduled", "ready", "leased", "dead"])
    def test_whatever_is_held_can_be_cancelled(
        self, queue: Queue, clock: FakeClock, state: str
    ) -> None:
        """G23"""
        delay = clock.now().resolution if state == "scheduled" else None
        queue.enqueue({}, id="a", run_after=delay)
        lease = claim_one(queue) if state in ("leased", "dead") else None
        if lease and state == "dead":
            queue.fail(lease, "no", retryable=False)

        assert queue.cancel("a", by="ada")

        assert counts(queue) == (0, 0, 0, 0)
        assert not queue.cancel("a")
        if state == "leased" and lease:
            assert refusal(lambda: queue.complete(lease)) is LostReason.CANCELLED
