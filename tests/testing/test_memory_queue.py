"""The queue in memory has the queue's own face: that it keeps the promises, others test."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django_leasequeue import Queue
from django_leasequeue.records import Depth
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.testing.memory import MemoryQueue
from django_leasequeue.wakeups import asleep
from tests.waiting import PATIENCE, in_thread, wait_for


def test_it_needs_no_database() -> None:
    """pytest-django refuses the connection to whoever asks for one here."""
    queue: Queue = MemoryQueue("emails", clock=FakeClock())
    queue.enqueue({"to": "ada"}, tenant="x")

    lease = queue.poll(worker="w")
    assert lease
    queue.complete(queue.heartbeat(lease, details=1))

    assert queue.depth() == Depth(visible=0, scheduled=0, leased=0, dead=0)
    assert repr(queue) == "<Queue 'emails' in 'memory'>"


def test_two_queues_share_what_they_are_told_to() -> None:
    first = MemoryQueue("emails")
    same = MemoryQueue("emails", store=first.store)
    first.enqueue({})

    assert MemoryQueue("emails").claim(worker="w") == []
    assert len(same.claim(worker="w")) == 1


def test_without_a_clock_real_time_passes() -> None:
    queue = MemoryQueue("emails")
    queue.enqueue({}, run_after=timedelta(milliseconds=30))

    assert queue.poll(worker="w") is None
    assert queue.poll(worker="w", wait=30)
    assert queue.poll(worker="w", wait=0.01) is None


def test_a_sleeping_poll_is_woken_by_an_enqueue() -> None:
    queue = MemoryQueue("emails")
    queue.options = replace(queue.options, poll_interval=300)
    polling = in_thread(lambda: queue.poll(worker="w", wait=300))
    wait_for(lambda: any(sleeper.using == "memory" for sleeper in asleep))

    queue.enqueue({}, id="a")

    lease = polling.result(PATIENCE)
    assert lease
    assert lease.id == "a"


def test_leases_are_never_shared_by_threads() -> None:
    queue = MemoryQueue("emails")
    queue.enqueue_many([{"payload": number} for number in range(200)])

    def claim_all() -> list[int]:
        numbers = []
        while lease := queue.poll(worker="w"):
            queue.complete(lease)
            numbers.append(lease.payload)
        return numbers

    claimers = [in_thread(claim_all) for _ in range(8)]

    assert sorted(n for claimer in claimers for n in claimer.result(PATIENCE)) == list(range(200))
