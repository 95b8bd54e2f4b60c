"""Claims from a backlog begin where the last one ended, and what lies before that is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_leasequeue.lease import Lease
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.stores.postgres.heads import (
    FULL_LOOK_SECONDS,
    LIMIT_MIN,
    SHARE,
    TENANTS_MAX,
    Bounds,
    Head,
)
from django_leasequeue.stores.postgres.rows import Claimed
from django_leasequeue.testing.clock import START
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


def begins_at_the_beginning(store: PostgresStore) -> bool:
    return store.heads["q"].bounds.since is None


def test_a_backlog_is_claimed_in_order(backlog: PostgresStore) -> None:
    claimed = [lease.id for _ in range(3) for lease in claim(backlog)]

    assert claimed == [str(number) for number in range(3 * LIMIT_MIN)]
    assert not begins_at_the_beginning(backlog)
    assert claim(backlog) == []
    assert begins_at_the_beginning(backlog)


def test_a_claim_that_found_all_remembers_nothing(store: PostgresStore) -> None:
    """The next one begins at the beginning: to remember would cost a woken worker time."""
    store.enqueue("q", [a_task("only")])

    assert claim(store)

    head = store.heads["q"]
    assert (head.bounds, head.priorities) == (Bounds(), frozenset())


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


def test_a_claim_that_is_not_filled_looks_from_the_beginning(
    backlog: PostgresStore, clock: HandClock
) -> None:
    """No claim is empty, or short, while there are visible tasks."""
    [first, *_] = claim(backlog)
    claim(backlog)
    PostgresStore("default", clock).release([first])

    assert claim(backlog)[0].id == "200"
    assert [lease.id for lease in claim(backlog)] == [first.id]


def test_what_another_process_let_come_due_is_found_though_it_is_of_before(
    backlog: PostgresStore, clock: HandClock
) -> None:
    """Somebody settles and leaves it; within a second no claim goes past it."""
    backlog.enqueue("q", [a_task("urgent", priority=5, run_after=timedelta(seconds=1))])
    claim(backlog)
    clock.set(5)
    PostgresStore("default", clock).settle("q")

    assert claim(backlog)[0].id == "urgent"


def test_what_is_settled_here_is_next(backlog: PostgresStore, clock: HandClock) -> None:
    """It became visible before others, and nobody had written that down."""
    [first, *_] = claim(backlog)
    clock.start += timedelta(seconds=60)
    clock.set(0)
    backlog.enqueue("q", [a_task(f"new{number}") for number in range(LIMIT_MIN)])

    claimed = [lease.id for lease in claim(backlog, 2 * LIMIT_MIN)]
    assert claimed == [str(number) for number in range(LIMIT_MIN, 3 * LIMIT_MIN)]
    assert [lease.id for lease in claim(backlog)[:2]] == ["first", first.id]


@pytest.fixture
def tenants(store: PostgresStore, watch: Watch) -> PostgresStore:
    """Two tenants and two priorities, one claim's worth taken."""
    store.heads["q"] = Head(watch)
    store.enqueue(
        "q",
        [
            a_task(f"{tenant}{priority}{number}", tenant=tenant, priority=priority)
            for tenant in "xy"
            for priority in (5, 0)
            for number in range(LIMIT_MIN)
        ],
    )
    claim(store, 2 * LIMIT_MIN)
    claim(store)
    return store


def test_each_tenant_and_priority_has_a_beginning(tenants: PostgresStore) -> None:
    bounds = tenants.heads["q"].asked()

    places = zip(bounds["tenants"], bounds["priorities"], strict=True)
    assert sorted(places) == [("x", 0), ("x", 5), ("y", 0), ("y", 5)]
    assert len(set(bounds["seq_from"])) == 4
    assert bounds["others_from"] == bounds["since"]


def test_nothing_is_looked_for_behind_it(tenants: PostgresStore, clock: HandClock) -> None:
    """Nor, therefore, does a claim step over what lies there dead."""
    behind = {"x50", "y50", "x00", "y00", "between", "third"}
    tenants.enqueue("q", [a_task("between", tenant="x", priority=3), a_task("third", tenant="t")])
    long_ago = clock.now() - timedelta(hours=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leasequeue_task SET lane = 'now', state = 'ready', visible_at = %s"
            " WHERE task_id = ANY (%s)",
            [long_ago, list(behind)],
        )

    assert not behind & {lease.id for lease in claim(tenants)}
    tenants.heads["q"].forget()
    assert behind <= {lease.id for lease in claim(tenants)}


@pytest.mark.parametrize("tenants", ["x", "xy"])
def test_nor_is_it_looked_for_what_came_due_behind_it(
    store: PostgresStore,
    watch: Watch,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    tenants: str,
) -> None:
    store.heads["q"] = Head(watch)
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in tenants for n in range(2 * LIMIT_MIN)])
    [first, *_] = claim(store)
    long_ago = clock.now() - timedelta(hours=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leasequeue_task SET visible_at = %s WHERE seq = %s", [long_ago, first.seq]
        )

    with monkeypatch.context() as nothing_is_due:
        nothing_is_due.delattr(PostgresStore, "settle_behind")
        assert claim(store)
    assert store.settle("q") == 0
    store.heads["q"].forget()
    assert store.settle("q") == 1


def test_what_is_settled_moves_each_beginning_back_to_it_but_none_forward() -> None:
    early, settled, late = (START + timedelta(seconds=number) for number in range(3))
    bounds = Bounds(
        reached={("x", 0): (late, 7), ("y", 0): (early, 3)},
        since=late,
        others_from=late,
        due_from=late,
    )

    assert bounds.before(settled) == Bounds(
        reached={("x", 0): (settled, 0), ("y", 0): (early, 3)},
        since=settled,
        others_from=settled,
        due_from=settled,
    )
    assert bounds.before(late + timedelta(seconds=1)) == bounds
    assert Bounds().before(settled) == Bounds(due_from=settled)


@pytest.mark.parametrize(("limit", "known"), [(5, False), (6, True)])
def test_who_could_have_had_twice_as_many_knows_that_there_are_no_other_tenants(
    store: PostgresStore, watch: Watch, limit: int, known: bool
) -> None:
    store.heads["q"] = Head(watch)
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "xyz" for n in range(LIMIT_MIN)])

    claim(store, limit)

    assert (store.heads["q"].bounds.others_from is not None) is known


def test_a_small_claim_hides_no_tenant_from_the_next(
    store: PostgresStore, watch: Watch, clock: HandClock
) -> None:
    store.heads["q"] = Head(watch)
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "xy" for n in range(LIMIT_MIN)])
    store.enqueue("q", [a_task("z", tenant="z")])
    clock.set(60)

    assert [lease.tenant for lease in claim(store, 2)] == ["x", "y"]
    assert [lease.tenant for lease in claim(store)[:3]] == ["z", "x", "y"]


def test_what_another_thread_found_meanwhile_hides_nothing(
    backlog: PostgresStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim begins at the beginning if it is to, whatever others do behind its first step."""
    [first, *_] = claim(backlog)
    PostgresStore("default", clock).release([first])
    take = backlog.take

    def meanwhile(*asked: Any, **more: Any) -> Claimed:
        monkeypatch.undo()
        claim(backlog)
        return take(*asked, **more)

    claim(backlog)
    monkeypatch.setattr(backlog, "take", meanwhile)

    assert claim(backlog, 1)[0].id == first.id


def test_a_third_tenant_is_not_passed_by(tenants: PostgresStore) -> None:
    tenants.enqueue("q", [a_task(f"{tenant}0", tenant=tenant) for tenant in ("a", "xx", "z")])

    assert {"a0", "xx0", "z0"} <= {lease.id for lease in claim(tenants)}


def test_nor_is_a_priority_between_those_that_are_known(tenants: PostgresStore) -> None:
    tenants.enqueue("q", [a_task(f"{tenant}between", tenant=tenant, priority=3) for tenant in "xy"])

    assert {lease.id for lease in claim(tenants)[:2]} == {"xbetween", "ybetween"}


@pytest.mark.parametrize("tenants", ["x", "xy"])
def test_what_became_visible_at_the_very_instant_that_was_looked_through_to_is_found(
    store: PostgresStore, watch: Watch, tenants: str
) -> None:
    """More than one of a tenant: a claim finds the first of each by other means than the rest."""
    store.heads["q"] = Head(watch)
    store.enqueue(
        "q",
        [
            a_task(f"{tenant}{priority}{number}", tenant=tenant, priority=priority)
            for tenant in tenants
            for priority, times in ((5, 1), (0, 2))
            for number in range(times * LIMIT_MIN)
        ],
    )
    claim(store, len(tenants) * LIMIT_MIN * 3 // 2)
    between = [a_task(f"{t}{n}", tenant=t, priority=3) for t in tenants for n in range(3)]
    store.enqueue("q", between)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE leasequeue_task SET visible_at = %s WHERE priority = 3",
            [store.heads["q"].bounds.since],
        )

    found = {lease.id for lease in claim(store)[: len(between)]}
    assert found == {task.id for task in between}


def test_of_too_many_tenants_nothing_is_remembered(store: PostgresStore) -> None:
    many = range(TENANTS_MAX + 1)
    store.enqueue("q", [a_task(f"{n}.{m}", tenant=str(n)) for n in many for m in range(5)])
    claim(store)

    assert store.heads["q"].asked()["tenants"] == []
    assert store.heads["q"].asked()["others_from"] is None


def test_a_full_look_that_took_long_is_not_repeated_soon(
    backlog: PostgresStore, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_claim = backlog.run_claim

    def slowly(*asked: Any, **more: Any) -> Claimed:
        watch.seconds += 1
        return run_claim(*asked, **more)

    monkeypatch.setattr(backlog, "run_claim", slowly)
    claim(backlog)
    monkeypatch.undo()
    since = backlog.heads["q"].bounds.since

    watch.seconds = SHARE
    claim(backlog)
    assert backlog.heads["q"].bounds.since == since
