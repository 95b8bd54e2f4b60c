"""Which task is next: the rotation, the one-tenant path, and what comes due by time alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_leasequeue.lease import Lease
from django_leasequeue.models import Turn
from django_leasequeue.records import Admitted
from django_leasequeue.stores import postgres
from django_leasequeue.stores.base import BATCH, Finish
from django_leasequeue.stores.postgres import PRUNE_EVERY, PostgresStore, heads
from tests.builders import a_task
from tests.waiting import PATIENCE, in_thread

from .conftest import HandClock, kinds


def ids(leases: list[Lease]) -> list[str]:
    return [lease.id for lease in leases]


def claim(store: PostgresStore, limit: int = 1) -> list[str]:
    return ids(store.claim("q", worker="w", limit=limit))


def in_turn(tasks: list[Admitted]) -> list[str]:
    """The whole order, one by one: tenants in turn, each by priority, then as enqueued."""
    waiting = sorted(tasks, key=lambda task: -task.priority)
    order: list[str] = []
    last: str | None = None
    while waiting:
        tenants = sorted({task.tenant for task in waiting})
        last = next((t for t in tenants if last is None or t > last), tenants[0])
        chosen = next(task for task in waiting if task.tenant == last)
        waiting.remove(chosen)
        order.append(chosen.id)
    return order


@pytest.fixture(params=["from the beginning", "from where the last one ended"])
def begun(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "from the beginning":
        monkeypatch.setattr(heads, "LIMIT_MIN", 1)
        monkeypatch.setattr(heads, "FULL_LOOK_SECONDS", inf)


@pytest.mark.parametrize("seed", range(8))
def test_claims_of_any_size_follow_the_order_of_claims_of_one(
    store: PostgresStore, seed: int, begun: None
) -> None:
    chance = random.Random(seed)
    tenants = chance.sample(["", "B", "a", "ab", "b", "é", "z"], chance.randint(1, 7))
    tasks = [
        a_task(str(n), tenant=chance.choice(tenants), priority=chance.choice([0, 0, 7]))
        for n in range(60)
    ]
    store.enqueue("q", tasks)

    claimed: list[str] = []
    while found := claim(store, chance.choice([1, 1, 2, 3, 9, 20])):
        claimed += found

    assert claimed == in_turn(tasks)


def test_tokens_tell_the_order_of_a_batch(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "xy" for n in range(4)])

    leases = store.claim("q", worker="w", limit=6)

    assert ids(leases) == ["x0", "y0", "x1", "y1", "x2", "y2"]
    assert [lease.token for lease in leases] == sorted(lease.token for lease in leases)


def statements(act: Callable[[], Any]) -> int:
    """How many statements *act* sends, but for the one that some tokens bring, by their number."""
    with pytest.MonkeyPatch.context() as patch, CaptureQueriesContext(connection) as captured:
        patch.setattr(postgres, "PRUNE_EVERY", inf)
        act()
    return len(captured)


def test_a_claim_is_one_statement_where_nothing_conflicts(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "xy" for n in range(9)])
    store.enqueue("single", [a_task(str(n)) for n in range(9)])

    for queue in ("q", "single"):
        for limit in (1, 1, 4):
            assert statements(lambda: store.claim(queue, worker="w", limit=limit)) == 1  # noqa: B023


def test_it_is_one_where_all_that_was_leased_has_left(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(str(n)) for n in range(3)])

    for _ in range(3):
        leases: list[Lease] = []
        assert statements(lambda: leases.extend(store.claim("q", worker="w", limit=1))) == 1  # noqa: B023
        store.complete([Finish(lease=lease, result="null") for lease in leases])


def test_a_claim_that_is_not_filled_looks_once_more_for_other_tenants(
    store: PostgresStore,
) -> None:
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "xy" for n in range(2)])

    assert statements(lambda: claim(store, 10)) == 2


def test_an_idle_claim_is_one_statement(store: PostgresStore) -> None:
    assert statements(lambda: claim(store)) == 1
    assert statements(lambda: claim(store, 10)) == 1


def test_a_second_tenant_is_served_as_soon_as_it_has_visible_work(store: PostgresStore) -> None:
    """The claimer takes the one-tenant path by then; the statement itself refuses it."""
    store.enqueue("q", [a_task(f"x{n}", tenant="x") for n in range(5)])
    assert [claim(store), claim(store)] == [["x0"], ["x1"]]

    store.enqueue("q", [a_task("y0", tenant="y"), a_task("a0", tenant="a")])

    assert claim(store) == ["y0"]
    assert claim(store, 5) == ["a0", "x2", "x3", "x4"]


def test_a_queue_with_one_tenant_writes_its_place_once(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(str(n)) for n in range(9)])

    assert claim(store, 4) + claim(store) + claim(PostgresStore("default", store.clock)) == list(
        "012345"
    )
    assert Turn.objects.count() == 1


def test_who_has_met_one_tenant_claims_by_the_statement_for_one(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    run_claim = store.run_claim

    def noted(name: str, *asked: Any, **more: Any) -> Any:
        names.append(name)
        return run_claim(name, *asked, **more)

    monkeypatch.setattr(store, "run_claim", noted)
    store.enqueue("q", [a_task(str(n)) for n in range(3)])

    assert [claim(store), claim(store)] == [["0"], ["1"]]
    assert names == ["claim_rotating", "claim"]


def test_a_claim_of_more_than_a_statement_takes_goes_on(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(str(n)) for n in range(1205)])

    assert len(claim(store, 1200)) == 1200
    assert len(claim(store, 1200)) == 5


@pytest.mark.parametrize("tenants", ["x", "xy"])
def test_what_came_due_takes_part_in_the_order(
    store: PostgresStore, clock: HandClock, tenants: str
) -> None:
    later = timedelta(seconds=5)
    for tenant in tenants:
        store.enqueue("q", [a_task(f"{tenant}0", tenant=tenant, run_after=later)])
        store.enqueue("q", [a_task(f"{tenant}1", tenant=tenant)])
        store.enqueue("q", [a_task(f"{tenant}2", tenant=tenant, priority=9, run_after=later)])
    assert len(claim(store, len(tenants))) == len(tenants)
    clock.set(4.999999)
    assert claim(store) == []

    clock.set(5)

    expected = ["x2", "x0"] if tenants == "x" else ["x2", "y2", "x0", "y0"]
    assert claim(store, 9) == expected


def test_no_claim_is_empty_while_a_due_task_waits_behind_dead_ones(
    store: PostgresStore, clock: HandClock
) -> None:
    """More leases have died by the clock than one settling writes down; one task came due last."""
    store.enqueue("q", [a_task(str(n), max_attempts=1) for n in range(2 * BATCH + 10)])
    store.enqueue("q", [a_task("late", run_after=timedelta(seconds=31))])
    claim(store, 2 * BATCH + 10)
    clock.set(32)

    assert claim(store) == ["late"]


def test_a_claim_fills_up_while_more_has_come_due(store: PostgresStore, clock: HandClock) -> None:
    later = timedelta(seconds=5)
    store.enqueue("q", [a_task(str(n), run_after=later) for n in range(3 * BATCH)])
    clock.set(5)

    assert claim(store, 3 * BATCH) == [str(n) for n in range(3 * BATCH)]


@pytest.mark.parametrize("tenants", ["x", "xy"])
def test_a_locked_task_is_stepped_over(store: PostgresStore, tenants: str, begun: None) -> None:
    """The first of a tenant's, and one behind it."""
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for n in range(5) for t in tenants])
    assert len(claim(store, len(tenants))) == len(tenants)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM leasequeue_task WHERE task_id ~ '1|3' FOR UPDATE")
        others = in_thread(lambda: claim(store, 9)).result(PATIENCE)

    assert others == [f"{tenant}{number}" for number in (2, 4) for tenant in tenants]


def test_a_locked_due_task_is_stepped_over(store: PostgresStore, clock: HandClock) -> None:
    store.enqueue("q", [a_task("a"), a_task("b", run_after=timedelta(seconds=30))])
    claim(store)
    clock.set(30)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM leasequeue_task WHERE task_id = 'a' FOR UPDATE")
        assert in_thread(lambda: claim(store, 5)).result(PATIENCE) == ["b"]

    assert claim(store) == ["a"]


def test_claims_in_flight_serve_different_tenants(store: PostgresStore) -> None:
    store.enqueue("q", [a_task(f"{t}{n}", tenant=t) for t in "abcdefgh" for n in range(3)])
    assert claim(store, 2) == ["a0", "b0"]

    with transaction.atomic():
        assert claim(store, 2) == ["c0", "d0"]
        assert in_thread(lambda: claim(store, 2)).result(PATIENCE) == ["e0", "f0"]


def test_old_places_are_forgotten(store: PostgresStore) -> None:
    """Not the last thousand: a claim in flight may still publish one of them."""
    for stamp in (1, 2000, 2001, 2500, 3000):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO leasequeue_turn VALUES ('q', %s, %s, 'x')", [stamp, stamp])
    store.enqueue("q", [a_task("x", tenant="x"), a_task("y", tenant="y")])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT setval('leasequeue_transition_id_seq', "
            "(nextval('leasequeue_transition_id_seq') / %(every)s + 1) * %(every)s, false)",
            {"every": PRUNE_EVERY},
        )

    assert claim(store) == ["y"]

    stamps = Turn.objects.order_by("stamp").values_list("stamp", flat=True)
    assert list(stamps) == [2001, 2500, 3000, 3001]


def test_an_enqueue_is_one_statement_and_a_duplicate_two(
    store: PostgresStore, clock: HandClock
) -> None:
    assert (
        statements(lambda: store.enqueue("q", [a_task("a", dedupe_key="n", max_attempts=1)])) == 1
    )
    assert statements(lambda: store.enqueue("q", [a_task("a")])) == 2
    claim(store)
    clock.set(30)

    assert statements(lambda: store.enqueue("q", [a_task("b", dedupe_key="n")])) == 3

    assert kinds() == ["enqueued", "duplicate", "leased", "dead", "enqueued"]


def test_a_bulk_enqueue_is_one_statement_in_a_transaction(store: PostgresStore) -> None:
    sent = statements(lambda: store.enqueue("q", [a_task(str(number)) for number in range(9)]))

    assert sent == len(["BEGIN", "enqueue", "COMMIT"])


def test_a_bulk_enqueue_is_its_own_duplicate_in_the_callers_order(store: PostgresStore) -> None:
    tasks = [
        a_task("z", dedupe_key="n"),
        a_task("a", dedupe_key="n"),
        a_task("z"),
        a_task("a"),
        a_task("b"),
    ]

    answers = store.enqueue("q", tasks)

    assert [(answer.id, answer.duplicate) for answer in answers] == [
        ("z", False),
        ("z", True),
        ("z", True),
        ("a", False),
        ("b", False),
    ]
    assert claim(store, 5) == ["z", "a", "b"]
