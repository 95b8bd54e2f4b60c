"""What the claimer does between two claims; without a database, and without waiting."""

from __future__ import annotations

import math
import threading

import pytest

from django_leasequeue.errors import QueueUnavailableError
from django_leasequeue.queue import Queue
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.wakeups import LocalSleeper
from django_leasequeue.worker.claimer import Claimer
from django_leasequeue.worker.deliveries import PATIENCE_SECONDS, WAIT_SECONDS_MAX, Deliveries
from django_leasequeue.worker.heartbeats import Heartbeats
from django_leasequeue.worker.outage import Outage, pause
from django_leasequeue.worker.sessions import Session
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread


class CountedSleeper(LocalSleeper):
    """Counts how often somebody announces that he sleeps; a task comes at once."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.using, [queue.name])
        self.queue = queue
        self.announced = 0

    def announce(self) -> None:
        self.announced += 1

    def sleep(self, seconds: float) -> bool:
        self.queue.enqueue({})
        return True


class NotedDeliveries(Deliveries):
    """One thread's, of tasks that take a moment. Notes who would wait for a change, how long."""

    def __init__(self) -> None:
        super().__init__(1, lambda: None)
        self.pace = 0.001
        self.waits: list[float] = []

    def wait_for_change(self, seen: int, seconds: float = WAIT_SECONDS_MAX) -> None:
        self.waits.append(seconds)


def claimer_of(queue: Queue, sleeper: LocalSleeper, deliveries: Deliveries) -> Claimer:
    outage = Outage()
    return Claimer(
        name="w",
        queues=[queue],
        deliveries=deliveries,
        heartbeats=Heartbeats(deliveries, outage, lambda: None),
        sleeper=sleeper,
        outage=outage,
        get_ready=lambda: None,
        is_async=lambda _: False,
        left=math.inf,
        drain=False,
        poll_interval=1,
        stopping=threading.Event(),
    )


@on_all
def test_who_has_found_a_task_sleeps_only_when_he_finds_no_more() -> None:
    """Each announcement costs two calls of the database, and each enqueue after it one more."""
    queue = MemoryQueue("emails", clock=FakeClock())
    queue.enqueue_many({"payload": n} for n in range(2))
    sleeper = CountedSleeper(queue)
    deliveries = Deliveries(1, lambda: None)
    claimer = claimer_of(queue, sleeper, deliveries)

    for announced in (0, 0, 1):
        assert in_thread(lambda: claimer.claim_or_sleep(Session())).result(PATIENCE)
        assert sleeper.announced == announced
        delivery = deliveries.take()
        assert delivery
        deliveries.end(delivery)
        deliveries.drop([delivery])


@on_all
@pytest.mark.parametrize("unmuted_at", ["announcing", "never"])
def test_who_has_muted_a_queue_that_is_resumed_does_not_sleep_on(unmuted_at: str) -> None:
    """G28: The upkeep read of the pause, the queue was resumed, only then it was muted.

    Or the upkeep unmutes it when it has just been left out of the announcement.
    """
    queue = MemoryQueue("emails", clock=FakeClock())
    sleeper = CountedSleeper(queue)
    sleeper.muted = frozenset({"emails"})
    announced_for: list[frozenset[str]] = []
    slept_for: list[frozenset[str]] = []

    def announce() -> None:
        announced_for.append(sleeper.queues - sleeper.muted)
        if unmuted_at == "announcing":
            sleeper.muted = frozenset()

    def sleep(seconds: float) -> bool:
        slept_for.append(announced_for[-1])
        if slept_for[-1]:
            queue.enqueue({})
        assert len(slept_for) < 3
        return True

    sleeper.announce, sleeper.sleep = announce, sleep  # type: ignore[method-assign]
    claimer = claimer_of(queue, sleeper, Deliveries(1, lambda: None))

    def claim_something() -> None:
        while not claimer.deliveries.waiting:
            claimer.claim_or_sleep(Session())

    in_thread(claim_something).result(PATIENCE)

    assert slept_for[-1] == {"emails"}


@on_all
def test_who_has_no_place_for_all_that_came_waits_for_one_before_the_next_claim() -> None:
    """A last attempt doesn't stand behind others: it would be claimed again and again."""
    queue = MemoryQueue("emails", clock=FakeClock())
    deliveries = NotedDeliveries()
    claimer = claimer_of(queue, CountedSleeper(queue), deliveries)

    for waits in ([], [PATIENCE_SECONDS]):
        queue.enqueue({}, max_attempts=1)
        assert in_thread(lambda: claimer.claim_or_sleep(Session())).result(PATIENCE)
        assert deliveries.waits == waits
    assert len(deliveries.in_hand()) == 1


@on_all
def test_who_sleeps_keeps_no_connection_longer_than_the_site_wants() -> None:
    queue = MemoryQueue("emails", clock=FakeClock())
    sleeper = CountedSleeper(queue)
    claimer = claimer_of(queue, sleeper, Deliveries(1, lambda: None))
    done: list[str] = []

    def sleep(seconds: float) -> bool:
        done.append("sleep")
        queue.enqueue({})
        return True

    def claim_or_sleep() -> None:
        session = Session()
        session.tidy = lambda: done.append("tidy")  # type: ignore[method-assign]
        claimer.claim_or_sleep(session)

    sleeper.sleep = sleep  # type: ignore[method-assign]
    in_thread(claim_or_sleep).result(PATIENCE)

    assert done == ["tidy", "sleep"]


@on_all
def test_a_claim_wakes_the_heartbeats_and_reads_what_its_tasks_have_been_through() -> None:
    queue = MemoryQueue("emails", clock=FakeClock())
    claimer = claimer_of(queue, CountedSleeper(queue), Deliveries(2, lambda: None))
    queue.enqueue({})
    queue.fail(queue.claim(worker="w")[0], "once", retry_after=0)
    queue.enqueue({})

    assert claimer.claim() == 2

    assert not claimer.heartbeats.requests.empty()
    again, first = claimer.deliveries.waiting
    assert [row.kind for row in again.history or ()] == ["enqueued", "leased", "retried", "leased"]
    assert first.history is None


@on_all
def test_who_can_not_claim_waits_ever_longer_and_begins_anew_once_he_could() -> None:
    queue = MemoryQueue("emails", clock=FakeClock())
    queue.enqueue({})
    deliveries = Deliveries(9, lambda: None)
    claimer = claimer_of(queue, CountedSleeper(queue), deliveries)
    outages = iter([True, True, False, True])
    pauses: list[float] = []

    def get_ready() -> None:
        if next(outages, None):
            raise QueueUnavailableError("away")

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            deliveries.close()

    claimer.get_ready = get_ready
    claimer.stopping.wait = wait  # type: ignore[assignment]
    in_thread(claimer.run).result(PATIENCE)

    assert pauses == [pause(failures, 1) for failures in (0, 1, 0)]


@on_all
@pytest.mark.parametrize(("coroutines", "on_loop"), [(0, False), (1, True)])
def test_async_tasks_have_a_place_on_the_loop_where_there_is_one(
    coroutines: int, on_loop: bool
) -> None:
    queue = MemoryQueue("emails", clock=FakeClock())
    deliveries = Deliveries(1, lambda: None, coroutines=coroutines)
    claimer = claimer_of(queue, CountedSleeper(queue), deliveries)
    claimer.is_async = lambda path: True
    queue.enqueue({})

    [delivery] = claimer.lease(queue, 1)

    assert delivery.coroutine is on_loop
