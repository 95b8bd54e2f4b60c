"""The log is only ever appended to, and what can't be appended didn't happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection

from django_leasequeue.lease import Lease
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind
from tests.builders import a_task

from .conftest import HandClock, a_dead_letter, a_failure, a_lease, kinds, projection

Move = Callable[[PostgresStore, Lease, HandClock], Any]


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE leasequeue_transition SET worker = 'nobody'",
        "DELETE FROM leasequeue_transition",
        "INSERT INTO leasequeue_transition (id, life, kind, at, queue, tenant, attempt) "
        "SELECT id, life, kind, at, queue, tenant, attempt FROM leasequeue_transition "
        "ON CONFLICT (id) DO UPDATE SET worker = 'nobody'",
    ],
)
def test_a_row_of_the_log_is_never_changed(store: PostgresStore, sql: str) -> None:
    """G34"""
    a_lease(store)

    with pytest.raises(IntegrityError, match="append-only"):
        execute(sql)

    assert kinds() == ["enqueued", "leased"]


def test_the_log_can_be_emptied_as_a_whole(store: PostgresStore) -> None:
    """flush and the teardown of tests need it."""
    a_lease(store)

    execute("TRUNCATE leasequeue_transition")

    assert kinds() == []


@pytest.fixture
def full_log() -> Iterator[Callable[[], None]]:
    """Makes every further append fail, for real, in the database."""
    yield lambda: execute(
        "CREATE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the log is full'; END $$;"
        "CREATE TRIGGER test_full BEFORE INSERT ON leasequeue_transition "
        "FOR EACH ROW EXECUTE FUNCTION test_refuse()"
    )
    execute("DROP FUNCTION IF EXISTS test_refuse CASCADE")


def redrive(store: PostgresStore) -> None:
    store.redrive("q", ["dead"], tenant="", by=None, reason=None)


def settle(store: PostgresStore, clock: HandClock) -> None:
    clock.set(30)
    store.settle("q")


MOVES: dict[str, Move] = {
    "enqueue": lambda store, lease, clock: store.enqueue("q", [a_task("new")]),
    "enqueue_many": lambda store, lease, clock: store.enqueue("q", [a_task("b"), a_task("c")]),
    "duplicate": lambda store, lease, clock: store.enqueue("q", [a_task("a")]),
    "claim": lambda store, lease, clock: store.claim("q", worker="w", limit=5),
    "heartbeat": lambda store, lease, clock: store.heartbeat(lease, "1"),
    "complete": lambda store, lease, clock: store.complete([Finish(lease=lease, result="1")]),
    "fail": lambda store, lease, clock: store.fail([a_failure(lease, Kind.RETRIED)]),
    "drop": lambda store, lease, clock: store.fail([a_failure(lease, Kind.DROPPED)]),
    "release": lambda store, lease, clock: store.release([lease]),
    "settle": lambda store, lease, clock: settle(store, clock),
    "adopt": lambda store, lease, clock: store.adopt("q", "w"),
    "redrive": lambda store, lease, clock: redrive(store),
    "erase": lambda store, lease, clock: store.erase("q", lease.life, by="x", reason=None),
    "cancel": lambda store, lease, clock: store.cancel("q", ["a"], tenant="", by="x", reason=None),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_that_can_not_be_logged_changes_nothing(
    store: PostgresStore, clock: HandClock, full_log: Callable[[], None], name: str
) -> None:
    """G33"""
    a_dead_letter(store, "dead")
    lease = a_lease(store, "a")
    store.enqueue("q", [a_task("ready")])
    before, logged = projection(), kinds()
    full_log()

    with pytest.raises(DatabaseError, match="the log is full"):
        MOVES[name](store, lease, clock)

    assert (projection(), kinds()) == (before, logged)


def test_the_tables_that_change_most_are_vacuumed_early(store: PostgresStore) -> None:
    """Else a fifth of the rows may be dead, at the head of the queue."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL")
        options = {name: set(its) for name, its in cursor.fetchall()}

    early = "autovacuum_vacuum_scale_factor=0.02"
    assert options["leasequeue_task"] >= {early, "fillfactor=80"}
    assert early in options["leasequeue_turn"]
