"""A prepared enqueue goes out together with the look for those who sleep, behind its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, DataError, IntegrityError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper

from django_leasequeue import wakeups
from django_leasequeue.admission import admit
from django_leasequeue.queue import Queue
from django_leasequeue.records import NewTask
from django_leasequeue.stores.postgres import statements
from django_leasequeue.stores.postgres.statements import PREPARED_FROM, PairCursor
from django_leasequeue.wakeups import Wake
from django_leasequeue.worker.sessions import Session
from tests.waiting import PATIENCE, in_thread, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue() -> Queue:
    """Whose statements are prepared."""
    connection.close()  # none of another test's
    queue = Queue("q")
    for number in range(PREPARED_FROM):
        queue.enqueue(number)
    return queue


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[PairCursor]:
    """What went out together."""
    made: list[PairCursor] = []
    execute = PairCursor.execute

    def noted(cursor: PairCursor, *args: Any) -> None:
        execute(cursor, *args)
        made.append(cursor)

    monkeypatch.setattr(PairCursor, "execute", noted)
    return made


@pytest.fixture
def asleep(queue: Queue) -> Iterator[psycopg.Connection[Any]]:
    """A session that listens, while somebody stands announced."""
    with queue.borrowed_sleeper() as sleeper, sleeper:
        other = connection.copy()
        other.ensure_connection()
        other.connection.execute(f"LISTEN {wakeups.CHANNEL}")
        yield other.connection
        other.close()
    queue.close()


def heard(session: psycopg.Connection[Any], seconds: float = 10) -> list[str]:
    with closing(session.notifies(timeout=seconds, stop_after=1)) as notes:
        return [note.payload for note in notes]


def test_both_go_out_at_once(queue: Queue, pairs: list[PairCursor]) -> None:
    queue.enqueue("x")
    assert [pair.followed for pair in pairs] == [True]
    assert queue.depth().visible == PREPARED_FROM + 1


def test_who_sleeps_hears_of_it_when_it_is_there(
    queue: Queue, pairs: list[PairCursor], asleep: psycopg.Connection[Any]
) -> None:
    queue.enqueue("x")
    assert heard(asleep) == ["q"]
    assert asleep.execute("SELECT count(*) FROM leasequeue_task").fetchone() == (PREPARED_FROM + 1,)
    assert len(pairs) == 1


def test_inside_a_transaction_the_look_comes_after_its_commit(
    queue: Queue, pairs: list[PairCursor], asleep: psycopg.Connection[Any]
) -> None:
    with transaction.atomic():
        queue.enqueue("x")
        assert heard(asleep, 0.2) == []
    assert heard(asleep) == ["q"]
    assert pairs == []


def test_a_duplicate_is_one_all_the_same_and_tried_once(
    queue: Queue, pairs: list[PairCursor], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue("x", dedupe_key="k")
    names: list[str] = []
    run = statements.run_plain

    def noted(using: str, name: str, parameters: Any) -> Any:
        names.append(name)
        return run(using, name, parameters)

    monkeypatch.setattr(statements, "run_plain", noted)
    assert queue.enqueue("x", dedupe_key="k").duplicate
    assert names == ["duplicate"]
    assert len(pairs) == 2


def test_a_duplicate_of_what_is_about_to_be_stored_waits_for_it(queue: Queue) -> None:
    """In a site that wants REPEATABLE READ, too, where the server calls that a conflict."""
    inside, blocked = threading.Event(), threading.Event()

    def other() -> None:
        with transaction.atomic():
            queue.enqueue("x", dedupe_key="k")
            inside.set()
            assert blocked.wait(PATIENCE)

    def watch() -> None:
        wait_for(somebody_waits_for_a_lock)
        blocked.set()

    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    first = in_thread(other)
    assert inside.wait(PATIENCE)
    watcher = in_thread(watch)
    assert queue.enqueue("x", dedupe_key="k").duplicate
    first.result(PATIENCE), watcher.result(PATIENCE)


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def unwatched() -> AbstractContextManager[Any]:
    return nullcontext()


def watched() -> AbstractContextManager[Any]:
    """Somebody of the site's looks at each statement: they go one by one."""
    return connection.execute_wrapper(lambda execute, *given: execute(*given))


@pytest.mark.parametrize("eyes", [unwatched, watched])
def test_what_can_not_be_committed_says_so_and_leaves_the_connection_in_order(
    queue: Queue, eyes: Callable[[], AbstractContextManager[Any]]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'not like this'; END $$;"
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON leasequeue_task"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    session = connection.connection
    try:
        with eyes(), pytest.raises(DatabaseError, match="not like this"):
            queue.enqueue("x")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse ON leasequeue_task; DROP FUNCTION refuse")
    queue.enqueue("y")
    assert connection.connection is session
    assert queue.depth().visible == PREPARED_FROM + 1


def test_what_the_site_s_own_trigger_swallows_is_told(queue: Queue) -> None:
    """It is neither stored nor a duplicate: the enqueue tried again, for ever."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN NULL; END $$;"
            "CREATE TRIGGER swallow BEFORE INSERT ON leasequeue_task"
            " FOR EACH ROW EXECUTE FUNCTION swallow()"
        )
    try:
        with pytest.raises(IntegrityError, match="neither stored nor held"):
            queue.enqueue("x")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER swallow ON leasequeue_task; DROP FUNCTION swallow")
    assert queue.depth().visible == PREPARED_FROM


def test_a_look_that_fails_undoes_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "LOCK_CLASS", "no number")
    queue.enqueue("x")
    assert "nobody could be told that queue=q has work" in caplog.text
    queue.enqueue("y")
    assert queue.depth().visible == PREPARED_FROM + 2


def test_a_statement_that_fails_leaves_the_connection_in_order(queue: Queue) -> None:
    task = admit(NewTask(payload="x"), queue.policy, bytes_max=100)
    queue.store.enqueue("q", [task], Wake(queue.using, queue.name))
    with pytest.raises(DataError):
        queue.store.enqueue("q", [replace(task, priority=99_999)], Wake(queue.using, queue.name))
    queue.enqueue("y")
    assert queue.depth().visible == PREPARED_FROM + 2


def test_what_is_stored_stays_so_where_the_look_s_answer_is_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, asleep: psycopg.Connection[Any]
) -> None:
    """The database has confirmed it: whoever tried again would have two. Who sleeps is told."""
    both = statements.both

    def cut(pgconn: Any, answers: list[Any]) -> Iterator[Any]:
        yield from both(pgconn, answers)
        answers.pop()
        raise psycopg.OperationalError("the connection is gone")

    with monkeypatch.context() as patch:
        patch.setattr(statements, "both", cut)
        assert not queue.enqueue("x").duplicate
    assert "q" in heard(asleep)
    queue.enqueue("y")
    assert queue.depth().visible == PREPARED_FROM + 2


def test_an_interrupt_costs_nobody_the_connection(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its answer would be taken for that of the next statement."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(statements, "both", interrupted)
        queue.enqueue("interrupted")
    queue.enqueue("after it")
    assert queue.depth().visible in (PREPARED_FROM + 1, PREPARED_FROM + 2)


def noting(seen: list[str]) -> Callable[..., Any]:
    """What watches a connection."""

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    return watch


def test_who_watches_the_connection_sees_each_statement(
    queue: Queue, pairs: list[PairCursor]
) -> None:
    seen: list[str] = []
    with connection.execute_wrapper(noting(seen)):
        queue.enqueue("x")
    names = ("enqueue_one", "notify")
    assert seen == [statements.statement(name).text for name in names]
    assert pairs == []


def test_who_watches_for_the_site_s_statements_only_is_passed_by(
    queue: Queue, pairs: list[PairCursor]
) -> None:
    """As a worker does, in each of its threads."""
    seen: list[str] = []
    watch = noting(seen)
    watch.passes_ours = Session.watch.passes_ours  # type: ignore[attr-defined]
    with connection.execute_wrapper(watch):
        queue.enqueue("x")
        connection.cursor().execute("SELECT 1")
    assert seen == ["SELECT 1"]
    assert len(pairs) == 1


@pytest.mark.parametrize("name", ["execute", "make_cursor"])
def test_who_stands_in_for_django_s_cursor_sees_each_statement(
    queue: Queue, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentry puts its own in the place of its ``execute``."""
    seen: list[str] = []
    execute = CursorWrapper.execute

    @wraps(execute)
    def noted(cursor: Any, sql: Any, params: Any = None) -> Any:
        seen.append(sql)
        return execute(cursor, sql, params)

    def noting(connection: Any, cursor: Any) -> Any:
        return type("Noting", (CursorWrapper,), {"execute": noted})(cursor, connection)

    if name == "execute":
        monkeypatch.setattr(CursorWrapper, "execute", noted)
    else:
        monkeypatch.setattr(type(connections["default"]), "make_cursor", noting)
    queue.enqueue("x")
    names = ("enqueue_one", "notify")
    assert seen == [statements.statement(name).text for name in names]


def test_django_warns_of_an_enqueue_before_the_apps_are_ready(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "ready", False)
    with pytest.warns(RuntimeWarning, match="during app initialization"):
        queue.enqueue("x")
