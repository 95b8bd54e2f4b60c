"""B31, the session's part: settings, locks and temporary tables end with the task that made them.

Where the connection outlives the task: at CONN_MAX_AGE 0 the session ends with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import connections, transaction
from django.db.backends.signals import connection_created

from django_leasequeue.worker.sessions import Session, TaskSession, drop, left_open
from tests.databases import ALIASES, IDS, on_all
from tests.waiting import PATIENCE, in_thread
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all

T = TypeVar("T")

POSTGRES = {
    "SET": "SET statement_timeout = 4321",
    "SET behind a comment": "/* a note */ -- another\n SET search_path = nowhere",
    "SET behind a statement": "SELECT 1; SET TimeZone = 'Asia/Tokyo'",
    "SET in a block": "DO $$ BEGIN SET work_mem = '1MB'; END $$",
    "SET by a function": "SELECT set_config('app.tenant', '7', false)",
    "role": "SET ROLE pg_monitor",
    "session authorization": "SET SESSION AUTHORIZATION pg_monitor",
    "read only": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "temporary table": "CREATE TEMP TABLE left_behind (number int)",
    "LISTEN": "LISTEN left_behind",
    "lock": "SELECT pg_advisory_lock(31)",
    "cursor": "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
    "prepared": "PREPARE left_behind AS SELECT 1",
    "short timeout": "SET statement_timeout = 1",
}
STATE = """
SELECT (SELECT string_agg(name || ' ' || setting, ', ' ORDER BY name) FROM pg_settings
         WHERE name IN ('statement_timeout', 'search_path', 'TimeZone', 'work_mem',
                        'default_transaction_read_only', 'application_name')),
       coalesce(current_setting('app.tenant', true), ''), current_user, session_user,
       to_regclass('left_behind')::text,
       (SELECT count(*) FROM pg_listening_channels()),
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_cursors WHERE name = 'left_behind'),
       (SELECT count(*) FROM pg_prepared_statements)
"""
SQLITE = {
    "PRAGMA": "PRAGMA query_only = 1",
    "PRAGMA behind a comment": "-- a note\n/* another */ PRAGMA query_only = 1",
    "temporary table": "CREATE TEMP TABLE left_behind (number int)",
    "attached": "ATTACH ':memory:' AS elsewhere",
}


MARIADB = {
    "SET": "SET SESSION max_statement_time = 4",
    "SET behind a comment": "-- a note\n/* another */ SET @left_behind = 1",
    "temporary table": "CREATE TEMPORARY TABLE left_behind (number int)",
    "lock": "SELECT GET_LOCK('left_behind', 1)",
}


def configured(monkeypatch: pytest.MonkeyPatch, alias: str, **changes: Any) -> None:
    """Let connections that are yet to be made differ from the test's own."""
    config = dict(connections.settings[alias]) | {"CONN_MAX_AGE": None} | changes
    monkeypatch.setitem(connections.settings, alias, config)


def between_tasks(work: Callable[[TaskSession], T]) -> T:
    """What *work* answers on a thread that runs tasks, and on its connections."""

    def run() -> T:
        session = TaskSession()
        try:
            return work(session)
        finally:
            connections.close_all()

    return in_thread(run).result(PATIENCE)


def execute(alias: str, sql: str, how: str = "Django's cursor") -> Any:
    connection = connections[alias]
    if how == "Django's cursor":
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchone() if cursor.description else None
    connection.ensure_connection()
    raw: Any = connection.connection
    raw.cursor().execute(sql)
    return None


@pytest.mark.parametrize("how", ["Django's cursor", "the driver's cursor"])
@pytest.mark.parametrize("what", POSTGRES)
def test_nothing_of_a_task_is_left_in_a_session_of_postgresql(
    monkeypatch: pytest.MonkeyPatch, what: str, how: str
) -> None:
    """G41"""
    configured(monkeypatch, "default")

    def work(session: TaskSession) -> tuple[Any, Any]:
        before = execute("default", STATE)
        session.tidy()
        execute("default", POSTGRES[what], how)
        session.tidy()
        return before, execute("default", STATE)

    before, after = between_tasks(work)

    assert after == before


@pytest.mark.parametrize("how", ["Django's cursor", "the driver's cursor"])
@pytest.mark.parametrize("what", SQLITE)
def test_nothing_of_a_task_is_left_in_a_session_of_sqlite(
    monkeypatch: pytest.MonkeyPatch, what: str, how: str
) -> None:
    """G41"""
    configured(monkeypatch, "sqlite")

    def work(session: TaskSession) -> list[Any]:
        execute("sqlite", SQLITE[what], how)
        session.tidy()
        kept = connections["sqlite"].connection
        asked = ["PRAGMA query_only", "SELECT count(*) FROM pragma_database_list WHERE seq <> 1"]
        return [kept, *(execute("sqlite", sql) for sql in asked)]

    assert between_tasks(work) == [None, (0,), (1,)]


@pytest.mark.skipif("mariadb" not in ALIASES, reason="no MariaDB")
@pytest.mark.parametrize("what", MARIADB)
def test_what_mariadb_was_told_through_django_ends_with_the_session(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """G41: a session that was only asked and written to is kept."""
    configured(monkeypatch, "mariadb")

    def work(session: TaskSession) -> list[Any]:
        kept = []
        for sql in ("UPDATE auth_group SET name = 'x' WHERE false", MARIADB[what]):
            execute("mariadb", sql)
            session.tidy()
            kept.append(connections["mariadb"].connection is not None)
        return kept

    assert between_tasks(work) == [True, False]


def test_a_session_goes_back_to_its_pool_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """G41"""
    pytest.importorskip("psycopg_pool")
    options = connections.settings["default"]["OPTIONS"] | {"pool": {"min_size": 1, "max_size": 1}}
    configured(monkeypatch, "default", OPTIONS=options, CONN_MAX_AGE=0)

    def work(session: TaskSession) -> list[Any]:
        found = []
        try:
            for what in POSTGRES.values():
                execute("default", what)
                session.tidy()
                assert connections["default"].connection is None
                found.append(execute("default", STATE))
                session.tidy()
            return found
        finally:
            connections["default"].close_pool()  # type: ignore[attr-defined]

    found = between_tasks(work)

    assert len(set(found)) == 1


def test_what_was_set_for_every_connection_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """G41: by OPTIONS, by TIME_ZONE, and by who listens to Django's signal."""
    options = connections.settings["default"]["OPTIONS"]
    ours = {"options": "-c statement_timeout=54321", "assume_role": "pg_monitor"}
    configured(monkeypatch, "default", OPTIONS=options | ours, TIME_ZONE="Asia/Tokyo")
    asked = """SELECT current_setting('statement_timeout'), current_setting('TimeZone'),
                      current_user, current_setting('app.tenant'), pg_backend_pid()"""

    def receiver(connection: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.tenant', '7', false)")

    def work(session: TaskSession) -> tuple[Any, Any]:
        before = execute("default", asked)
        session.tidy()
        execute("default", "RESET ALL; RESET ROLE; SET TimeZone = 'UTC'")
        session.tidy()
        return before, execute("default", asked)

    connection_created.connect(receiver)
    try:
        before, after = between_tasks(work)
    finally:
        connection_created.disconnect(receiver)

    assert before[:4] == ("54321ms", "Asia/Tokyo", "pg_monitor", "7")
    assert after == before


def test_a_backend_that_remembers_what_it_has_set_sets_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G41: as that of django-tenants does with its search_path, where it is told to SET it once."""
    configured(monkeypatch, "default")

    class Tenants(type(connections["default"])):  # type: ignore[misc]
        is_set = False

        def _cursor(self, name: str | None = None) -> Any:
            cursor = super()._cursor(name)
            if not self.is_set:
                cursor.execute("SET app.tenant = 7")
                self.is_set = True
            return cursor

        def rollback(self) -> None:
            self.is_set = False
            super().rollback()

    def work(session: TaskSession) -> list[Any]:
        connections["default"].__class__ = Tenants
        found = []
        for _ in range(2):
            found.append(execute("default", "SELECT current_setting('app.tenant')"))
            session.tidy()
        return found

    assert between_tasks(work) == [("7",)] * 2


def test_a_session_that_was_not_used_is_not_asked_and_one_that_was_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G41: and it is kept."""
    configured(monkeypatch, "default")
    talks: list[None] = []
    wait = psycopg.Connection.wait

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        talks.append(None)
        return wait(self, *args, **kwargs)

    def work(session: TaskSession) -> tuple[set[Any], list[int]]:
        pids, sent = set(), []
        for used in (True, False, True):
            if used:
                pids.add(execute("default", "SELECT pg_backend_pid()"))
            talks.clear()
            session.tidy()
            sent.append(len(talks))
        return pids, sent

    monkeypatch.setattr(psycopg.Connection, "wait", counted)
    pids, sent = between_tasks(work)

    assert (len(pids), sent) == (1, [1, 0, 1])


LEFT_OPEN: dict[str, Callable[[Any], object]] = {
    "block": lambda connection: transaction.atomic(using=connection.alias).__enter__(),
    "BEGIN": lambda connection: execute(connection.alias, "BEGIN"),
    "the driver's BEGIN": lambda connection: connection.connection.cursor().execute("BEGIN"),
    "autocommit": lambda connection: connection.set_autocommit(False),
    "closed": lambda connection: connection.connection.close(),
}


@pytest.mark.parametrize(
    ("alias", "leave"),
    [
        *(
            pytest.param(alias, leave, id=f"{name}-{what}")
            for alias, name in zip(ALIASES, IDS, strict=True)
            for what, leave in LEFT_OPEN.items()
        ),
        pytest.param(
            *("default", lambda connection: connection.connection.set_autocommit(False)),
            id="postgres-the driver's autocommit",
        ),
    ],
)
def test_a_session_that_was_left_open_is_seen_though_nothing_was_done_in_it(
    alias: str, leave: Callable[[Any], object]
) -> None:
    """G41"""

    def work(session: TaskSession) -> list[bool]:
        connection = connections[alias]
        seen = [left_open(connection)]
        execute(alias, "SELECT 1")
        seen.append(left_open(connection))
        leave(connection)
        seen.append(left_open(connection))
        drop(connection)
        return seen

    assert between_tasks(work) == [False, False, True]


def test_a_plain_task_keeps_the_connection_of_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, "sqlite")

    def work(session: TaskSession) -> tuple[Any, Any]:
        execute("sqlite", "SELECT count(*) FROM auth_group")
        before = connections["sqlite"].connection
        session.tidy()
        return before, connections["sqlite"].connection

    before, after = between_tasks(work)

    assert before is after is not None


@pytest.mark.parametrize(
    ("sql", "altered"),
    [
        ("SET SESSION sql_mode = ''", True),
        ("# a note\nSET NAMES latin1", True),
        ("SELECT 1; /* a note */ SET @x = 1", True),
        ("SELECT get_lock('a', 1)", True),
        ("CREATE TEMPORARY TABLE a (b int)", True),
        ("UPDATE a SET b = 1", False),
        ("INSERT INTO a VALUES (1) ON DUPLICATE KEY UPDATE b = 1", False),
        ("SELECT settings FROM a", False),
    ],
)
def test_elsewhere_statements_are_told_by_their_words(sql: str, altered: bool) -> None:
    session = in_thread(Session).result(PATIENCE)  # it watches its thread's connections for good
    session.watch(lambda *_: None, sql, None, False, {"connection": connections["default"]})

    assert bool(session.altered) == altered


def test_the_next_task_of_a_worker_finds_a_new_session(
    postgres: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G41"""
    configured(monkeypatch, "default")
    postgres.enqueue(tasks.poison, "/* a note */ SET search_path = nowhere")
    following = postgres.enqueue(tasks.count_groups)

    postgres.drain()

    following.refresh()
    assert following.return_value == 0
