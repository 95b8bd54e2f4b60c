"""While a queue is paused nothing is claimed from it, and everything else goes on."""

from __future__ import annotations

from django_leasequeue.queue import Queue

from ..clock import FakeClock
from .base import MakeQueue, across_threads, claim_ids, counts
from .wakeups import Asleep


class Pauses(Asleep):
    """Chapter 16 of the guarantees."""

    def test_nothing_is_claimed_while_paused_and_enqueueing_goes_on(self, queue: Queue) -> None:
        """G66"""
        queue.enqueue({}, id="a")
        assert queue.pause()

        queue.enqueue({}, id="b", tenant="x")

        assert queue.claim(worker="w", limit=10) == []
        assert counts(queue) == (2, 0, 0, 0)
        assert queue.resume()
        assert claim_ids(queue, limit=10) == ["a", "b"]

    def test_a_pause_is_of_one_queue(self, make: MakeQueue, queue: Queue) -> None:
        """G66"""
        other = make("other")
        other.enqueue({}, id="a")

        queue.pause()

        assert claim_ids(other) == ["a"]

    def test_what_runs_goes_on(self, queue: Queue, clock: FakeClock) -> None:
        """G66"""
        for id in "abc":
            queue.enqueue({}, id=id)
        done, failed, _ = queue.claim(worker="w", limit=3)
        queue.pause()

        clock.advance(20)
        queue.complete(queue.heartbeat(done))
        queue.fail(failed, "no", retry_after=0)
        clock.advance(10)  # nobody does the third: its lease is over

        assert counts(queue) == (2, 0, 0, 0)
        assert claim_ids(queue) == []

    def test_who_paused_and_why_is_known_until_it_is_resumed(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G67"""
        assert queue.pause(by="ada", reason="bad deploy")
        clock.advance(5)

        assert not queue.pause(by="bob", reason="too")
        paused = queue.paused()
        assert paused
        assert (paused.by, paused.reason, paused.at) == ("ada", "bad deploy", clock.start)
        assert queue.resume()
        assert not queue.resume()
        assert queue.paused() is None

    @across_threads
    def test_a_poll_is_woken_by_the_resumption(self, queue: Queue, clock: FakeClock) -> None:
        """G28, G66"""
        queue.enqueue({}, id="a")
        queue.pause()
        polling = self.poll_asleep(queue, clock, 30)

        queue.resume()

        lease = self.awoken(polling, clock)
        assert lease
        assert lease.leased_at == clock.start

    def test_a_poll_of_a_paused_queue_ends_with_nothing(self, queue: Queue) -> None:
        """G66"""
        queue.enqueue({})
        queue.pause()

        assert queue.poll(worker="w") is None
