"""A pause and a claim at the same time, on real connections, stepped by hand."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from django_leasequeue.stores import pauses
from django_leasequeue.stores.postgres import PostgresStore
from tests.builders import a_task
from tests.waiting import PATIENCE, answered, blocked


def pause(store: PostgresStore) -> bool:
    return store.pause("q", by="ada", reason="why")


def resume(store: PostgresStore) -> bool:
    return store.resume("q", by="bob", reason="over")


@pytest.mark.parametrize("tenants", [[""], ["x", "y"]], ids=["one tenant", "two"])
def test_a_pause_waits_for_the_claims_in_flight(store: PostgresStore, tenants: list[str]) -> None:
    """G66: None of them leases anything once it has returned."""
    for number, tenant in enumerate(tenants * 2):
        store.enqueue("q", [a_task(f"{tenant}{number}", tenant=tenant)])
    store.claim("q", worker="w", limit=1)  # from now on it knows how many tenants there are
    store.enqueue("q", [a_task(f"more of {tenant}", tenant=tenant) for tenant in tenants])

    with transaction.atomic():
        assert store.claim("q", worker="w", limit=1)
        late = blocked(lambda: pause(store))

    assert late.result(PATIENCE) is True
    assert store.claim("q", worker="w", limit=9) == []


def test_a_claim_that_waited_behind_a_pause_leases_nothing(store: PostgresStore) -> None:
    """G66"""
    store.enqueue("q", [a_task("a")])

    with transaction.atomic():
        pause(store)
        late = blocked(lambda: store.claim("q", worker="w", limit=1))

    assert late.result(PATIENCE) == []


def test_a_claim_that_waited_behind_a_resumption_leases(store: PostgresStore) -> None:
    store.enqueue("q", [a_task("a")])
    pause(store)

    with transaction.atomic():
        resume(store)
        late = blocked(lambda: store.claim("q", worker="w", limit=1))

    assert [lease.id for lease in late.result(PATIENCE)] == ["a"]


def test_who_vanishes_in_the_middle_of_a_pause_holds_up_the_claims_for_no_longer_than_that(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "IDLE_MILLISECONDS_MAX", 100)
    store.enqueue("q", [a_task("a")])

    with pytest.raises(DatabaseError), transaction.atomic():
        pause(store)
        [lease] = answered(lambda: store.claim("q", worker="w", limit=1))

    connection.close()
    assert lease.id == "a"
    assert store.pauses() == {}


def test_a_dump_is_in_nobodys_way(store: PostgresStore) -> None:
    """It holds ACCESS SHARE on every table, for hours."""
    store.enqueue("q", [a_task("a")])

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE leasequeue_pause IN ACCESS SHARE MODE")
        assert answered(lambda: pause(store)) is True
        assert answered(lambda: resume(store)) is True
        assert len(answered(lambda: store.claim("q", worker="w", limit=1))) == 1


def test_an_enqueue_doesn_t_wait_for_a_pause(store: PostgresStore) -> None:
    with transaction.atomic():
        pause(store)
        [task] = answered(lambda: store.enqueue("q", [a_task("a")]))

    assert task.id == "a"
