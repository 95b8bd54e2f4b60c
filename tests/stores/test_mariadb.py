"""What is MariaDB's own: rows that are locked in passing, isolation, and words by number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, close_old_connections, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue, QueueUnavailableError
from django_leasequeue.models import Task
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.portable import PortableStore
from django_leasequeue.testing.clock import FakeClock
from tests.builders import (
    QUEUE,
    a_claim,
    a_dead_letter,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    kinds,
    redriven,
)
from tests.databases import ALIASES
from tests.stores.conftest import committed
from tests.waiting import PATIENCE, blocked_sessions, in_thread, wait_for

pytestmark = [
    committed,
    pytest.mark.skipif("mariadb" not in ALIASES, reason="no MariaDB"),
    pytest.mark.parametrize("alias", ["mariadb"], indirect=True),
]


@contextmanager
def elsewhere(act: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """*act* is done in another session's transaction, which ends with the block, or on call."""
    done, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using="mariadb"):
            act()
            done.set()
            over.wait(PATIENCE)

    held = in_thread(hold)
    wait_for(lambda: done.is_set() or held.done())

    def end() -> None:
        over.set()
        held.result(PATIENCE)

    yield end
    end()


def lock(id: str) -> None:
    with connections["mariadb"].cursor() as cursor:
        cursor.execute("SELECT 1 FROM leasequeue_task WHERE task_id = %s FOR UPDATE", [id])


def reconnected(**options: Any) -> None:
    """This thread's session, anew with other options; Django closes it after the test."""
    connection = connections["mariadb"]
    connection.close()
    connection.settings_dict = connection.settings_dict | {
        "OPTIONS": connection.settings_dict["OPTIONS"] | options
    }


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """A site that sets the level which is the server's default, and not Django's."""
    before = connections["mariadb"].settings_dict
    reconnected(isolation_level="repeatable read")
    yield
    connections["mariadb"].close()
    connections["mariadb"].settings_dict = before


class TestRowsLockedByOthers:
    """Only the rows that a move is about are waited for, whatever lies beside them."""

    @pytest.fixture(autouse=True)
    def neighbour(self, store: Store) -> Iterator[None]:
        """A leased task that another transaction works on."""
        # What earlier tests have deleted stays in the index until it is purged, and who inserts
        # such a key again waits for whoever has locked the one behind it.
        with connections["mariadb"].cursor() as cursor:
            cursor.execute("TRUNCATE leasequeue_task")
        a_lease(store, "neighbour")
        with elsewhere(lambda: lock("neighbour")):
            yield

    def test_a_claim_steps_over_them(self, store: Store) -> None:
        store.enqueue(QUEUE, [a_task("a"), a_task("b")])

        with elsewhere(lambda: lock("a")):
            assert [lease.id for lease in store.claim(QUEUE, worker="w", limit=9)] == ["b"]

    def test_settling_steps_over_them(self, store: Store, clock: FakeClock) -> None:
        store.enqueue(QUEUE, [a_task(str(number)) for number in range(3)])
        store.claim(QUEUE, worker="w", limit=3)
        clock.set(30)

        with elsewhere(lambda: lock("1")):
            assert store.settle(QUEUE) == 2

    def test_a_heartbeat_does_not_wait_for_its_own(self, store: Store) -> None:
        """G14"""
        lease = a_lease(store)

        with elsewhere(lambda: lock("a")):
            beat = store.heartbeat(lease, '"page 3"')

        assert beat
        assert (beat.renewed, kinds(store, lease.life)) == (False, ["enqueued", "leased"])

    def test_a_redrive_calls_its_own_busy(self, store: Store) -> None:
        a_dead_letter(store)

        with elsewhere(lambda: lock("a")):
            assert redriven(store, "a") == (0, {"a": "busy"})

    def test_a_redrive_does_not_wait_for_who_has_the_key(self, store: Store) -> None:
        a_dead_letter(store, dedupe_key="k")
        store.enqueue(QUEUE, [a_task("holder", dedupe_key="k")])

        with elsewhere(lambda: lock("holder")):
            assert redriven(store, "a") == (0, {"a": "key 'k' is held by holder"})

    def test_nor_for_one_that_the_clock_has_made_let_go(
        self, store: Store, clock: FakeClock
    ) -> None:
        a_dead_letter(store, dedupe_key="k")
        a_lease(store, "holder", dedupe_key="k", max_attempts=1)
        clock.set(30)

        with elsewhere(lambda: lock("holder")):
            assert redriven(store, "a") == (0, {"a": "busy"})
        assert redriven(store, "a") == (1, {})

    def test_nobody_waits_for_the_others(self, store: Store) -> None:
        store.enqueue(QUEUE, [a_task(str(number)) for number in range(3)])
        one, two, three = store.claim(QUEUE, worker="w", limit=3)

        assert store.complete([a_finish(one)]) == {one.token}
        assert store.release([two]) == {two.token}
        assert store.adopt(QUEUE, "nobody") == []
        assert cancelled(store, three.id)
        store.enqueue(QUEUE, [a_task("new", dedupe_key="k")])


def test_a_finish_that_began_in_time_stands_though_it_is_committed_late(
    store: Store, clock: FakeClock
) -> None:
    """B11"""
    lease = a_lease(store)
    clock.set(29.999)

    with elsewhere(lambda: store.complete([a_finish(lease)])):
        clock.set(31)
        assert store.claim(QUEUE, worker="w2", limit=1) == []

    assert kinds(store, lease.life) == ["enqueued", "leased", "acked"]


@pytest.mark.parametrize("names", [{"dedupe_key": "k"}, {"id": "a"}], ids=["key", "id"])
class TestEnqueuesOfTheSame:
    """B22, and what comes between looking for a holder and storing."""

    def test_one_that_is_stored_after_the_look_is_found(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, names: dict[str, str]
    ) -> None:
        assert isinstance(store, PortableStore)
        look, faster = store.holder, [a_task(**({"id": "first"} | names))]

        def look_and_be_late(*given: Any) -> Any:
            seen = look(*given)
            if faster:
                in_thread(lambda: store.enqueue(QUEUE, [faster.pop()])).result(PATIENCE)
            return seen

        monkeypatch.setattr(store, "holder", look_and_be_late)

        [second] = store.enqueue(QUEUE, [a_task(**({"id": "second"} | names))])

        assert (second.duplicate, Task.objects.using("mariadb").count()) == (True, 1)

    @pytest.mark.parametrize("rolled_back", [True, False])
    def test_in_a_transaction_with_an_older_look_at_the_table(
        self, store: Store, repeatable_read: None, rolled_back: bool, names: dict[str, str]
    ) -> None:
        def first() -> None:
            store.enqueue(QUEUE, [a_task(**({"id": "first"} | names))])
            transaction.set_rollback(rolled_back, using="mariadb")

        with transaction.atomic(using="mariadb"):
            assert Task.objects.using("mariadb").count() == 0
            with elsewhere(first):
                pass
            [second] = store.enqueue(QUEUE, [a_task(**({"id": "second"} | names))])

        assert second.duplicate is not rolled_back
        assert Task.objects.using("mariadb").filter(life=second.life).exists()


def test_a_move_of_its_own_reads_what_is_committed_whatever_the_settings_say(
    store: Store, repeatable_read: None
) -> None:
    """REPEATABLE READ would lock the gap in which "b" goes."""
    levels: list[str] = []

    def note_level(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("INSERT"):
            execute("SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE"
                    " trx_mysql_thread_id = connection_id()", None, False, rest[-1])  # fmt: skip
            levels.append(rest[-1]["cursor"].fetchone()[0])
        return execute(sql, *rest)

    store.enqueue(QUEUE, [a_task("a")])
    with connections["mariadb"].execute_wrapper(note_level):
        cancelled(store, "a")

    assert levels == ["READ COMMITTED"]
    tasks = Task.objects.using("mariadb")
    with transaction.atomic(using="mariadb"):
        assert tasks.count() == 0
        in_thread(lambda: store.enqueue(QUEUE, [a_task("b")])).result(PATIENCE)
        assert tasks.count() == 0, "the site's own transactions are as it wants them"


def test_a_deadlock_is_for_the_caller_inside_a_transaction(store: Store) -> None:
    """The queue can't repeat what the caller has done before."""
    for id in "ab":
        store.enqueue(QUEUE, [a_task(id)])
    locked = threading.Event()

    def lock_both() -> None:
        with transaction.atomic(using="mariadb"):
            lock("b")
            locked.set()
            wait_for(lambda: blocked_sessions("mariadb") == 1)
            lock("a")

    other = in_thread(lock_both)
    locked.wait(PATIENCE)
    with pytest.raises(OperationalError, match="Deadlock") as mine, transaction.atomic("mariadb"):
        lock("a")
        cancelled(store, "b")
        other.result(PATIENCE)
        raise AssertionError("nobody met a deadlock") from other.exception()

    assert not isinstance(mine.value, QueueUnavailableError)


def test_an_enqueue_that_has_waited_too_long_says_that_nothing_is_stored(store: Store) -> None:
    """The server's own timeout is how long, as on SQLite."""
    queue = Queue(QUEUE, using=store.using)
    with connections["mariadb"].cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 1")

    with (
        elsewhere(lambda: store.enqueue(QUEUE, [a_task()])),
        pytest.raises(QueueUnavailableError, match="Lock wait timeout"),
    ):
        queue.enqueue({}, id="a")

    connections["mariadb"].close()


def test_a_server_that_does_not_take_writes_counts_as_out_of_reach(store: Store) -> None:
    """The primary before a fail-over, say."""
    queue = Queue(QUEUE, using=store.using)
    with connections["mariadb"].cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")

    with pytest.raises(QueueUnavailableError, match="READ ONLY"):
        queue.enqueue({})

    connections["mariadb"].close()


def test_a_killed_session_is_out_of_reach_once(store: Store) -> None:
    queue = Queue(QUEUE, using=store.using)
    with connections["mariadb"].cursor() as cursor:
        cursor.execute("SELECT connection_id()")
        [number] = cursor.fetchone()

    def kill() -> None:
        with connections["mariadb"].cursor() as cursor:
            cursor.execute("KILL %s", [number])

    in_thread(kill).result(PATIENCE)
    with pytest.raises(QueueUnavailableError):
        queue.enqueue({})

    assert not queue.enqueue({}).duplicate


def test_a_mistake_in_the_site_is_not_an_outage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(QUEUE, using=store.using)
    monkeypatch.setattr(Task._meta, "db_table", "nowhere")

    with pytest.raises(Exception, match="nowhere") as refused:
        queue.cancel("a")

    assert not isinstance(refused.value, QueueUnavailableError)


def test_a_claim_reads_through_indexes_and_locks_nothing_in_passing(store: Store) -> None:
    """B46: what it sorted it would have locked."""
    later = timedelta(hours=1)
    store.enqueue(QUEUE, [a_task(f"w{n}", tenant=str(n % 3), run_after=later) for n in range(50)])
    store.enqueue(QUEUE, [a_task("r", tenant="1")])
    connection = connections["mariadb"]
    with CaptureQueriesContext(connection) as made:
        a_claim(store, "r")

    asked = [query["sql"] for query in made if query["sql"].startswith("SELECT `")]
    with connection.cursor() as cursor:
        plans = []
        for sql in asked:
            cursor.execute(f"EXPLAIN {sql}")
            plans += [(row[3], row[9]) for row in cursor.fetchall()]

    assert len(asked) >= 4
    assert not [plan for plan in plans if plan[0] == "ALL" or "filesort" in plan[1]]


def test_a_connection_that_is_looked_after_is_opened_anew(
    store: Store, repeatable_read: None
) -> None:
    """``CONN_HEALTH_CHECKS``: a request's first statement may be ours, and the server restarted."""
    reconnected()
    connection = connections["mariadb"]
    connection.settings_dict |= {"CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": None}
    store.enqueue(QUEUE, [a_task("a")])
    with connection.copy().cursor() as cursor:
        cursor.execute(f"KILL {connection.connection.thread_id()}")

    close_old_connections()  # as each request does
    store.enqueue(QUEUE, [a_task("b")])
    assert store.depth(QUEUE).visible == 2
