"""B44: a task is visible at the instant that was meant, whatever the zones say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_leasequeue import InvalidTaskError, Queue
from django_leasequeue.testing.clock import FakeClock
from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

MakeQueue = Callable[..., Queue]

NEW_YORK, TOKYO = ZoneInfo("America/New_York"), ZoneInfo("Asia/Tokyo")
MICROSECOND = timedelta(microseconds=1)


def naive(*parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, fold=fold)  # type: ignore[arg-type]  # noqa: DTZ001


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


AWARE = [
    (datetime(2026, 6, 1, 12, tzinfo=TOKYO), utc(2026, 6, 1, 3)),
    (datetime(2026, 6, 1, 12, tzinfo=NEW_YORK), utc(2026, 6, 1, 16)),
    (datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK, fold=0), utc(2026, 11, 1, 5, 30)),
    (datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK, fold=1), utc(2026, 11, 1, 6, 30)),
    (timedelta(days=200), utc(2026, 7, 20)),
]
NAIVE = [
    (naive(2026, 6, 1, 12), utc(2026, 6, 1, 16)),
    (naive(2026, 3, 8, 2, 30), utc(2026, 3, 8, 7, 30)),  # never on a clock: 03:30 an hour on
    (naive(2026, 11, 1, 1, 30), utc(2026, 11, 1, 5, 30)),  # twice on a clock: the first
    (naive(2026, 11, 1, 1, 30, fold=1), utc(2026, 11, 1, 6, 30)),
]


def check_visible_at(queue: Queue, clock: FakeClock, when: Any, instant: datetime) -> None:
    queue.enqueue({}, run_after=when)

    clock.move(instant - MICROSECOND)
    assert queue.claim(worker="w") == []
    clock.move(instant)
    assert queue.claim(worker="w")


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize(("when", "instant"), AWARE, ids=str)
def test_an_aware_time_is_that_instant(
    make_queue: MakeQueue,
    clock: FakeClock,
    settings: Any,
    use_tz: bool,
    when: Any,
    instant: datetime,
) -> None:
    """G6"""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "America/New_York"

    check_visible_at(make_queue(), clock, when, instant)


@pytest.mark.parametrize(("when", "instant"), NAIVE, ids=str)
def test_a_naive_time_is_local_where_zones_are_off(
    make_queue: MakeQueue, clock: FakeClock, settings: Any, when: Any, instant: datetime
) -> None:
    """G6"""
    settings.USE_TZ, settings.TIME_ZONE = False, "America/New_York"

    check_visible_at(make_queue(), clock, when, instant)


def test_a_naive_time_is_refused_where_zones_are_on(make_queue: MakeQueue, settings: Any) -> None:
    """G36"""
    settings.USE_TZ = True
    queue = make_queue()

    with pytest.raises(InvalidTaskError, match="run_after must be an aware datetime"):
        queue.enqueue({}, run_after=naive(2026, 6, 1))

    assert queue.depth().scheduled == 0


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_time_that_is_over_is_now(
    make_queue: MakeQueue, clock: FakeClock, settings: Any, use_tz: bool
) -> None:
    """G6"""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "America/New_York"
    queue = make_queue()

    for over in (clock.now() - timedelta(hours=1), timedelta(hours=-1), clock.now()):
        queue.enqueue({}, run_after=over)

    assert queue.depth().visible == 3


@on_all
@pytest.mark.parametrize("use_tz", [True, False])
def test_django_tasks_take_them_too(site: Site, settings: Any, use_tz: bool) -> None:
    """A timedelta is what Django's design promised; its own backends raise AttributeError."""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "America/New_York"
    instant = datetime(2099, 6, 1, 12, tzinfo=TOKYO)

    later = site.enqueue(tasks.add, 1, 2, run_after=timedelta(hours=1))
    far = site.enqueue(tasks.add, 1, 2, run_after=instant)
    at_once = site.enqueue(tasks.add, 1, 2, run_after=timedelta(hours=-1))
    site.drain()

    at_once.refresh()
    assert (at_once.return_value, site.queue.depth().scheduled) == (3, 2)
    for result in (later, far):
        result.refresh()
        assert (result.task.run_after.tzinfo is not None) == use_tz
    expected = instant if use_tz else naive(2099, 5, 31, 23)
    assert far.task.run_after == expected
