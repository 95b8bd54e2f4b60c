"""No hot statement may read the table: its cost must not grow with the backlog (B46).

Plans are looked at as the server would keep them for any parameters, and as it makes them for
these; on tables that nobody has analysed since the load, and on analysed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.stores.postgres.statements import FOLDER, statement

LIVES = [UUID(int=n) for n in range(1, 101)]
TOKENS = list(range(1, 101))
TEXTS = [str(n) for n in range(100)]
ALL_TEXTS = {"path": TEXTS, "payload": TEXTS, "data": TEXTS, "tenant": TEXTS}
LONG_AGO = datetime(2028, 12, 31, tzinfo=UTC)
CLAIM = {
    "queue": "q",
    "worker": "w",
    "limit": 100,
    "gate": True,
    "tenants": ["t1", "t1", "t2"],
    "priorities": [5, 0, 0],
    "visible_from": [LONG_AGO] * 3,
    "seq_from": [0, 1, 2],
    "since": LONG_AGO,
    "others_from": LONG_AGO,
    "due_from": LONG_AGO,
}

ONE_TASK: dict[str, Any] = {
    "queue": "q",
    "tenant": "t1",
    "path": "",
    "priority": 0,
    "run_at": None,
    "delay_us": None,
    "max_attempts": 5,
    "visibility_us": 30_000_000,
    "max_lease_us": 3_600_000_000,
    "data": "{}",
}

# What each statement is given, and the indexes of the two big tables that it may use.
HOT: dict[str, tuple[dict[str, Any], set[str]]] = {
    "enqueue_one": (
        {**ONE_TASK, "life": LIVES[0], "id": "new", "payload": "null", "key": None},
        set(),
    ),
    "enqueue_alike": ({**ONE_TASK, "ids": LIVES, "payloads": TEXTS}, set()),
    "enqueue": (
        {
            **ALL_TEXTS,
            "queue": "q",
            "life": LIVES,
            "id": TEXTS,
            "key": TEXTS,
            "priority": TOKENS,
            "run_at": [None] * 100,
            "delay_us": TOKENS,
            "max_attempts": TOKENS,
            "visibility_us": TOKENS,
            "max_lease_us": TOKENS,
        },
        set(),
    ),
    "duplicate": (
        {
            "queue": "q",
            "numbers": [0],
            "tenants": ["t1"],
            "ids": ["1"],
            "keys": ["k"],
            "lives": LIVES[:1],
        },
        {
            "leasequeue_task_id",
            "leasequeue_task_live_key",
            "leasequeue_task_pkey",
            "leasequeue_transition_life",
        },
    ),
    "claim": (
        CLAIM | {"tenant": "t1"},
        {"leasequeue_task_now", "leasequeue_task_later", "leasequeue_task_pkey"},
    ),
    "claim_onward": (
        CLAIM | {"tenant": "t1"},
        {"leasequeue_task_now", "leasequeue_task_later", "leasequeue_task_pkey"},
    ),
    "claim_rotating": (
        CLAIM,
        {"leasequeue_task_now", "leasequeue_task_later", "leasequeue_task_pkey"},
    ),
    "settle": (
        {"queue": "q", "limit": 100, "due_from": LONG_AGO},
        {"leasequeue_task_later", "leasequeue_task_pkey"},
    ),
    "heartbeat": (
        {"seq": 1, "token": 1, "details": None, "data": None},
        {"leasequeue_task_pkey"},
    ),
    "complete": (
        {"seqs": TOKENS, "tokens": TOKENS, "data": TEXTS},
        {"leasequeue_task_pkey"},
    ),
    "fail": (
        {
            "seqs": TOKENS,
            "tokens": TOKENS,
            "kinds": TEXTS,
            "delays_us": TOKENS,
            "summaries": TEXTS,
            "fingerprints": TEXTS,
            "data": TEXTS,
        },
        {"leasequeue_task_pkey"},
    ),
    "release": (
        {"seqs": TOKENS, "tokens": TOKENS, "since": [datetime(2030, 1, 1, tzinfo=UTC)] * 100},
        {"leasequeue_task_pkey"},
    ),
    "redrive": (
        {
            "queue": "q",
            "tenant": "t1",
            "ids": TEXTS,
            "lives": LIVES,
            "data": "{}",
            "first_at": None,
            "gap_us": 0,
        },
        {
            "leasequeue_task_id",
            "leasequeue_task_live_key",
            "leasequeue_task_pkey",
            "leasequeue_transition_life",
        },
    ),
    "cancel": (
        {"queue": "q", "tenant": "t1", "ids": TEXTS, "lives": LIVES, "data": "{}"},
        {"leasequeue_task_id", "leasequeue_task_pkey", "leasequeue_transition_life"},
    ),
    "held": (
        {"queue": "q", "tenant": "t1", "id": "1", "life": LIVES[0]},
        {"leasequeue_task_id", "leasequeue_task_pkey", "leasequeue_transition_life"},
    ),
    "outlook": ({"queue": "q"}, {"leasequeue_task_now", "leasequeue_task_later"}),
}
# They read all of a queue, or all that is scheduled and leased, or only the small table of turns;
# or they call a function that has its own way with the planner, or no table at all.
NOT_GUARDED = {"depth", "adopt", "now", "prune_turns", "prune", "erase", "notify"}

SMALL = {"leasequeue_turn", "leasequeue_pause"}

BACKLOG = """
INSERT INTO leasequeue_task
       (seq, life, queue, tenant, task_id, path, payload, priority, max_attempts, visibility,
        max_lease, state, enqueued_at, visible_at, attempt, token, worker, leased_at, last_error,
        lane)
SELECT n, lpad(to_hex(n), 32, '0')::uuid, 'q', 't' || n %% 50, n::text, '', '{"some": "payload"}',
       0, 5, '30 s', '1 h', CASE n %% 4 WHEN 1 THEN 'leased' WHEN 2 THEN 'dead' ELSE 'ready' END,
       '2029-01-01 00:00Z',
       CASE n %% 4 WHEN 1 THEN timestamptz '2030-01-01 00:01Z' WHEN 3 THEN '2031-01-01 00:00Z'
                   ELSE '2029-01-01 00:00Z' END,
       1, n, 'w', '2030-01-01 00:00Z', '',
       CASE n %% 4 WHEN 0 THEN 'now' WHEN 2 THEN NULL ELSE 'later' END
  FROM generate_series(1, %(rows)s::integer) AS n
"""
ALIKE = """
INSERT INTO leasequeue_task
       (seq, life, queue, tenant, task_id, path, payload, priority, max_attempts, visibility,
        max_lease, state, enqueued_at, visible_at, attempt, last_error, lane)
SELECT n, lpad(to_hex(n), 32, '0')::uuid, 'q', 't1', n::text, '', '{"some": "payload"}', 0, 5,
       '30 s', '1 h', 'ready', '2029-01-01 00:00Z',
       timestamptz '2029-01-01 00:00Z' + n * interval '1 ms', 0, '', 'now'
  FROM generate_series(1, %(rows)s::integer) AS n
"""
LOG = """
INSERT INTO leasequeue_transition (life, kind, at, queue, tenant, attempt)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'enqueued', now(), 'q', '', 0
  FROM generate_series(1, %(rows)s::integer) AS n
"""


@pytest.fixture(
    params=[
        *("never analysed", "analysed while empty", "analysed while all waited", "analysed"),
        "all alike and analysed",
    ]
)
def backlog(store: PostgresStore, request: pytest.FixtureRequest) -> Iterator[None]:
    """20,000 tasks: a quarter each visible, scheduled, leased and dead, of 50 tenants."""
    tables = ("leasequeue_task", "leasequeue_transition")
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        # What autovacuum has found out about other tests' rows; only a superuser can forget it.
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone()[0]:
            cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'leasequeue_task'::regclass")
        if request.param == "analysed while empty":
            # As after a drain: pages there are, and statistics that know of no row in them.
            cursor.execute(BACKLOG, {"rows": 2_000})
            cursor.execute("DELETE FROM leasequeue_task")
            cursor.execute("ANALYZE leasequeue_task")
        alike = request.param == "all alike and analysed"
        for load in (ALIKE if alike else BACKLOG, LOG):
            cursor.execute(load, {"rows": 20_000})
        if request.param in ("analysed", "all alike and analysed"):
            cursor.execute("ANALYZE leasequeue_task, leasequeue_transition")
        if request.param == "analysed while all waited":
            # Leases come and go faster than statistics are made.
            cursor.execute(
                "UPDATE leasequeue_task SET state = 'ready', lane = 'now' WHERE state = 'leased'"
            )
            cursor.execute("ANALYZE leasequeue_task, leasequeue_transition")
            cursor.execute(
                "UPDATE leasequeue_task SET state = 'leased', lane = 'later' WHERE seq %% 4 = 1", {}
            )
    yield
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


def plan(name: str, parameters: dict[str, Any], mode: str) -> dict[str, Any]:
    """The server's plan for sql/*name*.sql."""
    guarded = statement(name)
    values = ", ".join(f"%({key})s" for key in guarded.parameters)
    with connection.cursor() as cursor:
        cursor.execute(f"SET plan_cache_mode = {mode}")
        cursor.execute("DEALLOCATE ALL")
        cursor.execute(f"PREPARE guarded AS {guarded.numbered.decode()}")
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE guarded({values})", parameters)
        [[[answer]]] = cursor.fetchall()
        cursor.execute("DEALLOCATE ALL")
        cursor.execute("RESET plan_cache_mode")
    found: dict[str, Any] = answer["Plan"]
    return found


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def plans(names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is looked at, and its plan."""
    for name in names:
        parameters, _ = HOT[name]
        for mode in ("force_generic_plan", "force_custom_plan"):
            now = datetime(2030, 1, 1, tzinfo=UTC)
            yield f"{name} {mode}", plan(name, parameters | {"now": now}, mode)


def test_hot_statements_read_their_tables_by_index_only(backlog: None) -> None:
    scanned, used = {}, {}
    for label, found in plans(HOT):
        scanned[label] = {
            node["Relation Name"] for node in nodes(found) if node["Node Type"].endswith("Seq Scan")
        }
        used[label] = {node["Index Name"] for node in nodes(found) if "Index Name" in node}

    assert {label: tables for label, tables in scanned.items() if tables - SMALL} == {}
    others = {
        label: names - HOT[label.split()[0]][1] - {"leasequeue_turn_pkey", "leasequeue_pause_queue"}
        for label, names in used.items()
    }
    assert {label: names for label, names in others.items() if names} == {}


@pytest.mark.parametrize(
    "backlog", ["never analysed", "analysed while all waited", "analysed"], indirect=True
)
def test_the_order_comes_from_the_index(backlog: None) -> None:
    """A sort below a LIMIT would read the whole backlog first.

    Where statistics say that the table is empty, a sort of nothing costs the planner nothing: that
    lasts until the table is analysed again, a minute after it was filled.
    """
    for label, found in plans(["claim", "claim_onward", "claim_rotating", "settle", "outlook"]):
        for node in nodes(found):
            read = [n for n in nodes(node) if n.get("Relation Name") == "leasequeue_task"]
            assert not ("Sort" in node["Node Type"] and read), label
            if node["Node Type"] == "Bitmap Index Scan":
                assert node["Index Name"] == "leasequeue_task_pkey", label  # rows picked already


def test_every_statement_is_guarded_or_known_not_to_be() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == HOT.keys() | NOT_GUARDED
