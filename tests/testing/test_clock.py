"""The fake clock: it moves when a test moves it, or by itself when all sleep."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta

from django_leasequeue.testing.clock import START, FakeClock
from tests.waiting import PATIENCE, in_thread, wait_for


def never() -> bool:
    return False


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def asleep_until(clock: FakeClock, seconds: float) -> Future[float]:
    """A thread that sleeps, and then answers what the clock shows."""

    def sleep() -> float:
        with clock.changed:  # else it may move on before we look
            clock.wait_until(START + at(seconds), never)
            return (clock.now() - START).total_seconds()

    before = len(clock.waiting)
    sleeping = in_thread(sleep)
    wait_for(lambda: len(clock.waiting) > before or sleeping.done())
    return sleeping


def test_it_shows_what_it_was_set_to() -> None:
    clock = FakeClock()
    assert clock.now() == START

    clock.advance(1.5)
    clock.advance(0.000001)
    assert clock.now() == START + at(1.500001)

    clock.set(70)
    assert clock.now() == START + at(70)


def test_a_sleeper_goes_on_at_its_instant_and_not_before() -> None:
    clock = FakeClock()
    early, late = asleep_until(clock, 5), asleep_until(clock, 10)

    clock.advance(5)

    assert early.result(PATIENCE) == 5
    assert not late.done()
    assert clock.waiting == [START + at(10)]
    clock.advance(60)
    assert late.result(PATIENCE) == 65


def test_a_sleeper_that_is_woken_goes_on_at_once() -> None:
    clock, woken = FakeClock(), threading.Event()
    sleeping = in_thread(lambda: clock.wait_until(START + at(60), woken.is_set))
    wait_for(lambda: bool(clock.waiting))

    woken.set()
    clock.poke()

    sleeping.result(PATIENCE)
    assert clock.now() == START


def test_what_is_past_is_not_waited_for() -> None:
    FakeClock(auto=False).wait_until(START, never)


def test_on_auto_it_jumps_to_the_earliest_awaited_instant_when_all_sleep() -> None:
    """Each sleeper sees its own instant, however many there are: none is jumped over."""
    clock = FakeClock()
    sleepers = [asleep_until(clock, 3600 * number) for number in (2, 1, 24)]

    clock.auto = True
    clock.poke()

    assert [sleeper.result(PATIENCE) for sleeper in sleepers] == [7200, 3600, 86_400]


def test_on_auto_it_never_goes_back() -> None:
    """Those who waited for an instant that is past are still about to go on."""
    clock = FakeClock(auto=True)
    with clock.changed:
        clock.waiting.append(START + at(1))
        clock.advance(5)

        clock.jump()

    assert clock.now() == START + at(5)
