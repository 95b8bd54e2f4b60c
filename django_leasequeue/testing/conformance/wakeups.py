"""A waiting poll returns when there is something to do, and sleeps when there isn't.

No real time passes: it returns when the clock is advanced, or something wakes it.
"""

from __future__ import annotations

from concurrent.futures import Future, wait

import pytest

from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue

from ..clock import FakeClock
from .base import Chapter, across_threads, bury, leased
from .threads import in_thread, wait_for

Polling = Future[Lease | None]


class Asleep(Chapter):
    """What chapters need whose polls wait in another thread."""

    def poll_asleep(self, queue: Queue, clock: FakeClock, seconds: float) -> Polling:
        """A poll in another thread that has gone to sleep by the time this returns."""
        polling = in_thread(lambda: queue.poll(worker="sleeper", wait=seconds))
        wait_for(lambda: polling.done() or bool(clock.waiting), self.patience_seconds)
        assert not polling.done(), "the poll didn't wait"
        return polling

    def awoken(self, polling: Polling, clock: FakeClock) -> Lease | None:
        """What the poll came back with, by itself."""
        in_time = wait([polling], self.patience_seconds).done
        clock.advance(86_400)  # nobody is left asleep behind a failure
        assert in_time, "the poll sleeps on: nothing woke it"
        return polling.result()


class WakeUps(Asleep):
    """Chapter 6 of the guarantees."""

    @across_threads
    def test_a_poll_is_woken_by_an_enqueue(self, queue: Queue, clock: FakeClock) -> None:
        """G28"""
        polling = self.poll_asleep(queue, clock, 30)

        queue.enqueue({}, id="a")

        lease = self.awoken(polling, clock)
        assert lease
        assert (lease.id, lease.leased_at) == ("a", clock.start)

    @across_threads
    @pytest.mark.parametrize("gesture", ["retry", "release", "redrive", "adopt"])
    def test_a_poll_is_woken_by_a_task_given_back(
        self, queue: Queue, clock: FakeClock, gesture: str
    ) -> None:
        """G28"""
        lease = bury(queue) if gesture == "redrive" else leased(queue, id="a")
        polling = self.poll_asleep(queue, clock, 20)

        match gesture:
            case "retry":
                queue.fail(lease, "no", retry_after=0)
            case "release":
                queue.release(lease)
            case "redrive":
                queue.redrive(["a"])
            case "adopt":
                queue.adopt(worker="w")

        again = self.awoken(polling, clock)
        assert again
        assert again.token > lease.token

    @across_threads
    def test_a_poll_returns_when_a_retry_comes_due(self, queue: Queue, clock: FakeClock) -> None:
        """G29"""
        queue.fail(leased(queue), "no", retry_after=2)
        polling = self.poll_asleep(queue, clock, 30)

        clock.advance(2)

        lease = self.awoken(polling, clock)
        assert lease
        assert lease.attempt == 2

    @across_threads
    def test_a_poll_returns_when_a_lease_lapses(self, queue: Queue, clock: FakeClock) -> None:
        """G29"""
        leased(queue, visibility=3)
        polling = self.poll_asleep(queue, clock, 30)

        clock.advance(3)

        lease = self.awoken(polling, clock)
        assert lease
        assert lease.attempt == 2

    @across_threads
    def test_a_poll_returns_with_nothing_at_its_end(self, queue: Queue, clock: FakeClock) -> None:
        """G30"""
        polling = self.poll_asleep(queue, clock, 4)

        clock.advance(4)

        assert self.awoken(polling, clock) is None

    def test_a_poll_that_waits_for_nothing_returns_at_once(self, queue: Queue) -> None:
        """G30"""
        assert queue.poll(worker="w") is None
