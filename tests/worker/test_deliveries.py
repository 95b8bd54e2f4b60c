"""The leases in a worker's hands, without a database: who starts, who waits, who comes back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from django_leasequeue import QueuePolicy
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.worker.deliveries import (
    AHEAD_MAX,
    AHEAD_PARTS,
    PATIENCE_SECONDS,
    Deliveries,
    Delivery,
)
from tests.waiting import PATIENCE, in_thread, wait_for

pytestmark = pytest.mark.usefixtures("standing")


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

    assert taken[0].result(PATIENCE) is second
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
    behind.claimed_at -= PATIENCE_SECONDS + 0.1
    ours.add([slow, behind])
    ours.take()

    assert ours.take_back() == [behind]
    assert ours.take_back() == []


def taken(ours: Deliveries, count: int = 1) -> list[Delivery]:
    found = [ours.take() for _ in range(count)]
    assert None not in found
    return [each for each in found if each]


def ended(ours: Deliveries, delivery: Delivery, seconds: float) -> None:
    """Its task has taken so long."""
    delivery.started_at = time.monotonic() - seconds
    ours.end(delivery)


def test_before_it_is_known_how_long_tasks_take_only_what_can_start_is_claimed() -> None:
    ours = deliveries(threads=3)

    assert ours.room() == 3
    came = claimed(2)
    assert came[0].seconds_run() == 0
    ours.add(came)
    taken(ours)
    assert ours.room() == 1


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.001, 400), (0.01, 50), (0.1, 5), (0.25, 2), (1.0, 0)]
)
def test_the_shorter_tasks_are_the_more_are_claimed_ahead(seconds: float, ahead: int) -> None:
    """As many as two threads do in a quarter of a second, and never without bound."""
    ours = deliveries(threads=2)
    [first] = claimed(1)
    ours.add([first])
    [running] = taken(ours)
    ended(ours, running, seconds)
    ours.pace = seconds

    assert ours.room() == 2 + ahead


def test_the_pace_follows_the_last_tasks() -> None:
    ours = deliveries()
    paces = []
    for delivery, seconds in zip(claimed(3), (1.0, 2.0, 2.0), strict=True):
        ours.add([delivery])
        taken(ours)
        ended(ours, delivery, seconds)
        paces.append(ours.pace)

    assert paces == pytest.approx([1.0, 1.2, 1.36], abs=1e-9)


def test_a_task_that_runs_long_ends_claiming_ahead_before_it_has_ended() -> None:
    ours = deliveries()
    ours.pace = 0.001
    [delivery] = claimed(1)
    ours.add([delivery])
    taken(ours)
    assert ours.room() == 250
    delivery.started_at = time.monotonic() - 1

    assert ours.room() == 0


def test_what_has_ended_and_is_not_on_record_bounds_what_is_claimed() -> None:
    """It would be done again after a crash."""
    ours = deliveries()
    ours.pace = 0.001
    [one] = claimed(1)
    for _ in range(999):
        ours.finishing.add(Delivery(queue=one.queue, lease=one.lease, sent_at=one.sent_at))

    assert ours.room() == 1


def test_tasks_start_in_the_order_in_which_they_came_and_none_after_the_end() -> None:
    ours = deliveries(threads=2)
    came = claimed(3)
    ours.add(came)

    assert taken(ours, 2) == came[:2]
    assert all(each.started_at for each in came[:2])
    assert ours.at_work() == [*ours.running]
    ours.close()
    assert ours.take() is None
    assert ours.wait_for_room() is False


def again(count: int) -> list[Delivery]:
    """Deliveries of tasks that have been delivered before."""
    clock = FakeClock()
    queue = MemoryQueue("q", policy=QueuePolicy(max_attempts=3, backoff_base=0), clock=clock)
    queue.enqueue_many({"payload": n} for n in range(count))
    for lease in queue.claim(worker="w", limit=count):
        queue.fail(lease, "no")
    leases = queue.claim(worker="w", limit=count)
    return [Delivery(queue=queue, lease=lease, sent_at=time.monotonic()) for lease in leases]


def test_a_task_that_was_delivered_before_starts_at_once_or_comes_back() -> None:
    """Were the worker to die, it would lose an attempt without having begun. (B20)"""
    ours = deliveries()
    first, second = again(2)

    assert ours.add([first, second]) == [second]
    ours.pace = 0.001
    assert ours.room() == 0, "one by one, until as many have ended"
    taken(ours)
    ended(ours, first, 0.001)
    assert ours.room() > 1


def test_who_sleeps_until_something_ends_is_woken_then_and_when_it_is_recorded() -> None:
    emptied: list[int] = []
    ours = Deliveries(1, lambda: emptied.append(1))
    [delivery] = claimed(1)
    ours.add([delivery])
    taken(ours)

    seen = ours.changes
    asleep = in_thread(lambda: ours.wait_for_change(seen))
    ours.end(delivery)
    asleep.result(PATIENCE)
    assert ours.in_hand() == [delivery]
    assert emptied == []

    asleep = in_thread(lambda: ours.wait_for_record(delivery))
    ours.drop([delivery])
    asleep.result(PATIENCE)
    assert (ours.in_hand(), emptied) == ([], [1])


def test_a_sleep_that_began_too_late_is_none() -> None:
    ours = deliveries()
    seen = ours.changes
    ours.drop([])

    ours.wait_for_change(seen, 60)

    assert ours.changes == seen + 1


def test_what_has_waited_for_too_long_is_taken_out_of_its_line() -> None:
    ours = deliveries(coroutines=1)
    waiting, young = claimed(2)
    [launching] = claimed(1, coroutine=True)
    ours.add([waiting, young, launching])
    for each in (waiting, launching):
        each.claimed_at -= PATIENCE_SECONDS + 0.1

    assert ours.take_stale() == [waiting, launching]
    assert ours.in_hand() == [young]
    assert ours.take_stale() == []


def test_company_is_awaited_while_more_can_start_and_never_where_each_is_to_be_recorded() -> None:
    ours, strict = deliveries(), deliveries(strict=True)
    assert not ours.company_comes()

    for each in (ours, strict):
        each.add(claimed(1))

    assert (ours.company_comes(), strict.company_comes()) == (True, False)


def test_a_loop_takes_as_many_as_it_has_places_for() -> None:
    ours = deliveries(coroutines=2)
    came = claimed(3, coroutine=True)
    assert ours.room() == 1 + 2
    ours.add(came)

    assert [ours.take_coroutine(), ours.take_coroutine()] == came[:2]
    assert not ours.worth_a_launch()
    late = in_thread(ours.take_coroutine)
    ours.end(came[0])
    assert late.result(PATIENCE) is came[2]
    assert ours.at_work() == [*ours.afloat]


def test_where_its_tasks_are_short_a_loop_finds_others_waiting() -> None:
    """As many as end in a quarter of a second; until the newest has run for longer than that."""
    ours = deliveries(coroutines=2)
    short, slow = claimed(2, coroutine=True)
    ours.add([short])
    ours.take_coroutine()
    ended(ours, short, 0.01)
    assert 1 + 2 + 48 <= ours.room() <= 1 + 2 + 50

    other, *waiting = claimed(5, coroutine=True)
    assert ours.add([other, slow, *waiting]) == []
    for each in (ours.take_coroutine(), ours.take_coroutine()):
        assert each
        each.started_at = time.monotonic() - 60
    assert ours.room() == 1
    assert len(ours.add(claimed(1, coroutine=True))) == 1


def test_threads_that_never_come_back_are_counted_until_none_is_left() -> None:
    """Given up by time-out or cap, its lease over, its task still there."""
    ours = deliveries(threads=2)
    first, second = claimed(2)
    ours.add([first, second])
    taken(ours, 2)

    for delivery in (first, second):
        assert not ours.all_stuck()
        delivery.renew_no_more()
        assert not delivery.stuck(), "its lease lasts"
        delivery.sent_at -= delivery.visibility
        assert delivery.stuck()
    assert ours.all_stuck()
    second.being_recorded()
    assert not ours.all_stuck()


def test_a_claim_is_due_when_a_quarter_of_what_may_wait_has_started() -> None:
    """The rest outlasts it: a thread that waits for an answer does nothing."""
    ours = deliveries()
    ours.ahead = lambda: AHEAD_MAX  # type: ignore[method-assign]  # as where tasks take no time
    ours.add(claimed(AHEAD_MAX + 1))
    for _ in range(AHEAD_MAX // AHEAD_PARTS - 1):
        [running] = taken(ours)
        ended(ours, running, 0.0)
    [running] = taken(ours)
    ours.patience = lambda: 60.0  # type: ignore[method-assign]  # only what starts is to tell
    asking = in_thread(ours.wait_for_room)
    wait_for(lambda: bool(vars(ours.change)["_waiters"]))  # it has found none
    ended(ours, running, 0.0)
    assert not asking.done()

    taken(ours)

    assert asking.result(PATIENCE)
    assert ours.room() == AHEAD_MAX // AHEAD_PARTS
