"""Claims from a backlog begin where the last one ended, and what lies before that is found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_leasequeue.lease import Lease
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.stores.postgres.heads import (
    FROM_THE_BEGINNING,
    FULL_LOOK_SECONDS,
    LIMIT_MIN,
    Head,
)
from tests.builders import a_task

from .conftest import HandClock

LATER = FULL_LOOK_SECONDS


class Watch:
    """Seconds of the process's clock, as a test wants them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def backlog(store: PostgresStore, clock: HandClock, watch: Watch) -> PostgresStore:
    """Three claims' worth, one a second; the queue's only tenant is known, so is its head."""
    store.enqueue("q", [a_task("first")])
    clock.set(1)
    for number in range(3 * LIMIT_MIN):
        clock.set(1 + number / LIMIT_MIN)
        store.enqueue("q", [a_task(str(number))])
    store.claim("q", worker="w", limit=1)
    store.heads["q"] = Head(watch)
    return store


def claim(store: PostgresStore, limit: int = LIMIT_MIN) -> list[Lease]:
    return store.claim("q", worker="w", limit=limit)


def begun_at_the_beginning(store: PostgresStore) -> bool:
    return store.heads["q"].bounds is FROM_THE_BEGINNING


def test_a_backlog_is_claimed_in_order(backlog: PostgresStore) -> None:
    claimed = [lease.id for _ in range(3) for lease in claim(backlog)]

    assert claimed == [str(number) for number in range(3 * LIMIT_MIN)]
    assert not begun_at_the_beginning(backlog)
    assert claim(backlog) == []
    assert begun_at_the_beginning(backlog)


def test_a_later_task_of_more_priority_is_not_passed_by(backlog: PostgresStore) -> None:
    claim(backlog)
    backlog.enqueue("q", [a_task("urgent", priority=1), a_task("idle", priority=-1)])

    assert claim(backlog)[0].id == "urgent"
    claim(backlog)
    assert [lease.id for lease in claim(backlog)] == ["299", "idle"]


def test_behind_its_priority_a_claim_goes_on_with_the_lower_ones(backlog: PostgresStore) -> None:
    backlog.enqueue("q", [a_task(f"low{n}", priority=-5) for n in range(LIMIT_MIN)])
    claim(backlog)

    claimed = [lease.id for lease in claim(backlog, 2 * LIMIT_MIN + 50)]

    rest = [str(number) for number in range(LIMIT_MIN, 3 * LIMIT_MIN)]
    assert claimed == [*rest, *(f"low{n}" for n in range(50))]


def test_what_is_given_back_here_is_next(backlog: PostgresStore) -> None:
    [first, *_] = claim(backlog)
    backlog.release([first])

    assert claim(backlog)[0].id == first.id


def test_what_is_given_back_elsewhere_is_found_in_two_seconds(
    backlog: PostgresStore, clock: HandClock, watch: Watch
) -> None:
    [first, *_] = claim(backlog)
    PostgresStore("default", clock).release([first])

    assert claim(backlog)[0].id != first.id
    watch.seconds = LATER
    assert claim(backlog)[0].id == first.id


def test_a_small_claim_begins_at_the_beginning(backlog: PostgresStore, clock: HandClock) -> None:
    [first, *_] = claim(backlog)
    PostgresStore("default", clock).release([first])

    assert claim(backlog, 1)[0].id == first.id


def test_what_came_due_is_found_though_others_are_known_not_to_be(
    backlog: PostgresStore, clock: HandClock
) -> None:
    leases = claim(backlog)
    clock.start += timedelta(hours=1)
    clock.set(0)

    again = claim(backlog, 10 * LIMIT_MIN)
    assert {lease.id for lease in leases} <= {lease.id for lease in again}
