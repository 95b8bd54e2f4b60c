"""Who may do what to the tables, with the rights of docs/production.md, and by the functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from django_leasequeue import batches
from django_leasequeue.models import Batch, Task
from django_leasequeue.records import ALL as EVERY_TENANT, Depth
from django_leasequeue.retention import Walk, prune_batches
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import ENDED, REPEATED, fold_all
from tests.builders import a_task

from .conftest import HandClock, a_dead_letter, a_lease, kinds, log

DOCS: Final = Path(__file__).resolve().parent.parent.parent.parent / "docs/production.md"
GRANTS: Final = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
ALL: Final = dict.fromkeys([*ENDED, *REPEATED], 0.0)


def execute(sql: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchall() if cursor.description else None


@contextmanager
def role(name: str) -> Iterator[None]:
    execute(f"SET ROLE {name}")
    try:
        with transaction.atomic():
            yield
    finally:
        execute("SET ROLE leasequeue_test_owner")


@pytest.fixture
def owned(db: None) -> None:
    """Tables migrated by an owner who is no superuser, and the roles that the docs have.

    All of it, roles too, is rolled back.
    """
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL is not a PostgreSQL")
    execute(
        "CREATE ROLE leasequeue_test_owner; CREATE ROLE site; CREATE ROLE web;"
        "CREATE SCHEMA owned AUTHORIZATION leasequeue_test_owner;"
        "SET LOCAL search_path = owned; SET LOCAL ROLE leasequeue_test_owner"
    )
    executor = MigrationExecutor(connection)
    executor.migrate(
        [node for node in executor.loader.graph.leaf_nodes() if node[0] == "leasequeue"]
    )
    execute("GRANT USAGE ON SCHEMA owned TO site, web")
    for grants in GRANTS:
        execute(grants)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(owned: None, clock: HandClock) -> PostgresStore:
    return PostgresStore("default", clock)


def live_and_leave(store: PostgresStore) -> None:
    store.complete([Finish(lease=a_lease(store), result="1")])


@pytest.mark.parametrize(
    "sql", ["DELETE FROM leasequeue_transition", "UPDATE leasequeue_transition SET data = '1'"]
)
def test_the_site_prunes_but_can_not_rewrite_the_log(
    store: PostgresStore, clock: HandClock, sql: str
) -> None:
    """G34 G57"""
    with role("site"):
        live_and_leave(store)
        a_dead_letter(store, "dead")
        clock.set(1)
        assert Walk(store, ALL).step() == (3, False)

    with pytest.raises(ProgrammingError, match="permission denied"), role("site"):
        execute(sql)

    assert kinds() == ["enqueued", "leased", "dead"]


@pytest.mark.parametrize(
    "sql", ["DELETE FROM leasequeue_transition", "UPDATE leasequeue_transition SET data = '1'"]
)
def test_a_role_with_the_rights_does_not_get_past_the_guard_by_a_setting(
    store: PostgresStore, sql: str
) -> None:
    """G34"""
    live_and_leave(store)
    execute("GRANT UPDATE, DELETE ON leasequeue_transition TO site")

    with pytest.raises(IntegrityError, match="append-only"), role("site"):
        execute("SET LOCAL leasequeue.door = 'open'")
        execute(sql)


def test_the_owner_does_not_delete_by_accident_even_after_pruning(
    store: PostgresStore, clock: HandClock
) -> None:
    """G34"""
    live_and_leave(store)
    a_dead_letter(store, "dead")
    clock.set(1)
    Walk(store, ALL).step()

    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        execute("DELETE FROM leasequeue_transition")


def test_the_site_erases_but_can_not_rewrite_the_log(store: PostgresStore) -> None:
    """G34 G60"""
    with role("site"):
        lease = a_lease(store, payload='"secret"')
        assert store.erase("q", lease.life, by=None, reason=None)
        assert store.find(lease.life) == fold_all(store.history([lease.life]))

    assert [row.payload for row in log()] == ["null", None, None]
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        execute("DELETE FROM leasequeue_transition")


def test_the_site_goes_on_with_batches(store: PostgresStore) -> None:
    a_dead_letter(store)
    with role("site"):
        batches.begin(Task.objects.using("default"), verb="cancel", by="ada")
        batch = batches.unfinished("default")
        assert batch
        assert batches.go_on(batch, seconds=10).moved == 1
        Batch.objects.update(done_at=batch.at - timedelta(days=1))
        assert [prune_batches("default", ALL) for _ in range(3)] == [1, 1, 0]


def test_who_was_not_granted_to_does_not_prune(store: PostgresStore) -> None:
    live_and_leave(store)
    execute("REVOKE EXECUTE ON FUNCTION leasequeue_prune FROM site")

    with pytest.raises(ProgrammingError, match="permission denied"), role("site"):
        Walk(store, ALL).step()


def test_the_web_process_enqueues_and_reads(store: PostgresStore, clock: HandClock) -> None:
    """G34: also where the clock has ended the task that holds the id or the key."""
    store.enqueue("q", [a_task("lapsed", visibility=timedelta(seconds=1))])
    store.enqueue("q", [a_task("dead", dedupe_key="k", max_attempts=1)])
    store.claim("q", worker="w", limit=2)
    clock.set(60)

    with role("web"):
        [new, lapsed, key] = store.enqueue(
            "q", [a_task("new"), a_task("lapsed"), a_task("other", dedupe_key="k")]
        )
        assert (new.duplicate, lapsed.duplicate, key.duplicate) == (False, True, False)
        assert store.depth("q") == Depth(visible=3, scheduled=0, leased=0, dead=1)
        [letter] = store.dead("q", tenant=EVERY_TENANT)
        assert store.history([letter.life])[-1].kind == "dead"
        assert store.counts("q")["duplicate"] == 1

    assert kinds()[-4:] == ["lapsed", "dead", "duplicate", "enqueued"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM leasequeue_transition",
        "UPDATE leasequeue_transition SET data = '1'",
        "TRUNCATE leasequeue_transition",
        "DELETE FROM leasequeue_task",
        "UPDATE leasequeue_task SET payload = '1'",
        "UPDATE leasequeue_task SET token = 1, worker = 'me'",
        "SELECT leasequeue_prune('{acked}', NULL, 'infinity', 'infinity', 0, 100)",
        "SELECT leasequeue_erase('q', gen_random_uuid(), now(), NULL)",
        "UPDATE leasequeue_effect SET done_at = NULL",
    ],
)
def test_the_web_process_rewrites_nothing(store: PostgresStore, sql: str) -> None:
    """G34"""
    a_lease(store)

    with pytest.raises(ProgrammingError, match="permission denied"), role("web"):
        execute(sql)


def test_the_web_process_leases_nothing(store: PostgresStore) -> None:
    """G34"""
    store.enqueue("q", [a_task("a")])

    with pytest.raises(ProgrammingError, match="permission denied"), role("web"):
        store.claim("q", worker="w", limit=1)


def test_tables_of_the_callers_own_do_not_come_before_the_log(store: PostgresStore) -> None:
    live_and_leave(store)

    with role("site"):
        execute(
            "CREATE TEMP TABLE leasequeue_transition AS SELECT * FROM owned.leasequeue_transition"
        )
        execute("SET LOCAL search_path = pg_temp, owned")
        [(pruned,)] = execute(
            "SELECT pruned FROM leasequeue_prune(%s, NULL, 'infinity', 'infinity', 0, 100)",
            sorted(ENDED),
        )
        assert pruned == 3
        assert execute("SELECT count(*) FROM pg_temp.leasequeue_transition") == [(3,)]


def test_operators_of_the_callers_own_are_not_run_in_the_owners_name(
    store: PostgresStore, clock: HandClock
) -> None:
    """They fit better than the server's own: there is none for these two types."""
    lease = a_lease(store)
    store.complete([Finish(lease=lease, result="1")])
    clock.set(1)
    execute("GRANT CREATE ON SCHEMA owned TO site")

    with role("site"):
        execute(
            "CREATE FUNCTION owned.bend(varchar, text) RETURNS boolean LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'run by %', current_user; END $$;"
            "CREATE OPERATOR owned.= (FUNCTION = owned.bend, LEFTARG = varchar, RIGHTARG = text)"
        )
        assert store.erase("q", lease.life, by=None, reason=None)
        assert Walk(store, ALL).step() == (4, False)


EVERYTHING: Final = [
    "enqueued", "leased", "retried", "released", "lapsed", "dead", "redriven", "duplicate",
    "heartbeat", "acked", "dropped", "cancelled", "no such kind", None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("kinds_", "before", "behind", "size"),
    [
        (EVERYTHING, "infinity", 0, 1_000_000_000),
        (EVERYTHING, "infinity", -(2**62), -1),
        (EVERYTHING, "infinity", None, None),
        (EVERYTHING, None, 0, 100),
        (EVERYTHING, "-infinity", 0, 100),
        (None, "infinity", 0, 100),
        ([], "infinity", 2**62, 0),
    ],
)
def test_whatever_is_asked_for_no_held_task_is_harmed(
    store: PostgresStore,
    clock: HandClock,
    kinds_: list[str] | None,
    before: str | None,
    behind: int | None,
    size: int | None,
) -> None:
    """G58"""
    lease = a_lease(store, max_lease=timedelta(days=1))
    for second in range(1, 4):
        clock.set(second)
        store.heartbeat(lease, f'"page {second}"' if second < 3 else None)
        store.enqueue("q", [a_task("a")])
    a_dead_letter(store, "dead")
    held = store.find(lease.life)

    for _ in range(12):
        execute(
            "SELECT * FROM leasequeue_prune(%s, NULL, %s, 'infinity', %s, %s)",
            *(kinds_, before, behind, size),
        )

    lives = {row.life for row in log()}
    assert len(lives) == 2
    assert store.find(lease.life) == held
    for life in lives:
        assert fold_all(store.history([life])) == store.find(life)
