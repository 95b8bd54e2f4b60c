"""What a sleeping poll is told on PostgreSQL, and what nobody is told; in real time."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created

from django_leasequeue import Lease, Queue, wakeups
from django_leasequeue.listening import ListeningSleeper
from django_leasequeue.testing.memory import MemoryQueue
from django_leasequeue.wakeups import LocalSleeper, Sleeper
from tests.stores.levels import LEVELS, isolated
from tests.waiting import PATIENCE, in_thread, wait_for
from tests.worker.conftest import receiving

NEVER = 3600.0


@pytest.fixture
def queue(transactional_db: None) -> Iterator[Queue]:
    """A queue on PostgreSQL and real time, whose poll interval never helps."""
    if connection.vendor != "postgresql":
        pytest.skip("LISTEN needs PostgreSQL: DATABASE_URL names another database")
    queue = Queue("emails")
    queue.options = replace(queue.options, poll_interval=NEVER)
    yield queue
    queue.close()


@pytest.fixture
def notes(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """A session that hears every notification."""
    wrapper = connection.copy()
    wrapper.ensure_connection()
    wrapper.connection.execute(f"LISTEN {wakeups.CHANNEL}")
    yield wrapper.connection
    wrapper.close()


def heard(notes: psycopg.Connection[Any]) -> list[str]:
    """The queues that were notified since the last call; our own probes don't count."""
    notes.execute("SELECT 1")
    payloads = [notify.payload for notify in notes.notifies(timeout=0.2)]
    return [payload for payload in payloads if not payload.startswith("echo ")]


def somebody_sleeps() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database AS place ON place.oid = database"
            " WHERE locktype = 'advisory' AND classid = %s AND datname = current_database()",
            [wakeups.LOCK_CLASS],
        )
        return bool(cursor.fetchone()[0])


def poll_listening(queue: Queue) -> Future[Lease | None]:
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
    wait_for(lambda: polling.done() or somebody_sleeps())
    return polling


@pytest.mark.parametrize("name", ["emails", "é" * 40, "with ' quote; and Capitals", "q" * 100])
def test_a_notification_wakes_a_listening_poll(queue: Queue, name: str) -> None:
    """G28: Names that are no channel names work alike: the name travels in the payload."""
    queue.name = name
    polling = poll_listening(queue)

    queue.enqueue({}, id="a")

    lease = polling.result(PATIENCE)
    assert lease
    assert lease.id == "a"


@pytest.mark.parametrize("kind", ["listening", "local"])
def test_a_sleeper_sleeps_until_its_own_process_wakes_it_and_is_woken_without_waiting(
    queue: Queue, kind: str
) -> None:
    """G28: by any thread, and by a signal's handler: however often, none of them may wait."""

    def slept(seconds: float) -> float:
        begun = time.monotonic()
        in_thread(lambda: sleeper.sleep(seconds)).result(PATIENCE)
        return time.monotonic() - begun

    sleeper: Sleeper = LocalSleeper("default", [queue.name])
    if kind == "listening":
        sleeper = ListeningSleeper("default", [queue.name], "default")
    with closing(sleeper), sleeper:
        assert slept(0.1) >= 0.1
        sleeper.wake()
        slept(NEVER)
        assert slept(0.1) >= 0.1
        for _ in range(70_000):
            sleeper.wake()
        slept(NEVER)


def test_a_connection_that_comes_half_way_is_closed(queue: Queue) -> None:
    """As where a receiver of Django's signal fails, whenever somebody is about to sleep."""
    half_open: list[Any] = []

    def refuse(connection: Any, **_: Any) -> None:
        half_open.append(connection)
        raise ZeroDivisionError

    with receiving(connection_created, refuse), pytest.raises(ZeroDivisionError):
        wakeups.own_connection("default")

    assert [each.connection for each in half_open] == [None]


def test_a_session_that_cannot_be_mended_is_tried_ever_later_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G31"""
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    sleeper = ListeningSleeper("default", ["emails"], "default")
    pauses = []
    for _ in range(9):
        with sleeper.mending():
            os.close(-1)
        pauses.append(sleeper.retry_at - 1000)
    sleeper.close()

    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert caplog.text.count("is gone") == 1


def test_nobody_is_notified_while_nobody_sleeps(
    queue: Queue, notes: psycopg.Connection[Any]
) -> None:
    """G32: any more, too."""
    with queue.borrowed_sleeper() as sleeper, sleeper:
        assert somebody_sleeps()
    queue.enqueue({})

    assert heard(notes) == []


def test_a_sleeper_that_has_muted_a_queue_hears_of_its_resumption_only(
    queue: Queue, notes: psycopg.Connection[Any]
) -> None:
    """G32: Else each enqueue to a paused queue would wake all its workers, for nothing."""
    with queue.borrowed_sleeper() as sleeper:
        sleeper.muted = frozenset({queue.name})
        queue.pause()
        with sleeper:
            queue.enqueue({})
            assert heard(notes) == []

            queue.resume()
            assert heard(notes) == [queue.name]


def test_many_enqueues_of_one_transaction_notify_once_and_after_the_commit(
    queue: Queue, notes: psycopg.Connection[Any]
) -> None:
    """G32"""
    with queue.borrowed_sleeper() as sleeper, sleeper:
        with transaction.atomic():
            for number in range(5):
                queue.enqueue({}, id=str(number))
            assert heard(notes) == []

        assert heard(notes) == ["emails"]


def test_a_rolled_back_savepoint_takes_only_its_own_wake_with_it(
    queue: Queue, notes: psycopg.Connection[Any]
) -> None:
    polling = poll_listening(queue)

    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            queue.enqueue({}, id="undone")
            raise ZeroDivisionError
        queue.enqueue({}, id="kept")

    lease = polling.result(PATIENCE)
    assert lease
    assert lease.id == "kept"


def test_a_transaction_that_django_knows_nothing_of_keeps_nobody_from_sleeping(
    queue: Queue,
) -> None:
    """G30: a ``BEGIN`` of the site's own; a poll waited for its end, not for its own."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        queue.enqueue({})
        try:
            assert in_thread(lambda: queue.poll(worker="w1", wait=0.2)).result(PATIENCE) is None
            polling = poll_listening(queue)
        finally:
            cursor.execute("COMMIT")
    assert polling.result(PATIENCE)


def test_enqueues_under_savepoints_of_their_own_notify_once(
    queue: Queue, notes: psycopg.Connection[Any]
) -> None:
    """As where a loop of the site's has an ``atomic()`` in it: else each looked at all before it,
    and each was told of after the commit. What is rolled back takes only its own along."""
    with queue.borrowed_sleeper() as sleeper, sleeper:
        with transaction.atomic():
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                queue.enqueue({})
                raise ZeroDivisionError
            for _ in range(5):
                with transaction.atomic():
                    queue.enqueue({})
            assert len(connection.run_on_commit) == 1
        assert heard(notes) == ["emails"]


def test_what_comes_while_something_else_is_asked_is_not_kept(queue: Queue) -> None:
    """The driver would keep each notification, for as long as a worker lives."""
    with queue.borrowed_sleeper() as sleeper, sleeper, connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, 'x')", [wakeups.CHANNEL])
        session = sleeper.session  # type: ignore[attr-defined]
        session.execute("SELECT 1")
        assert not session._notifies_backlog


def test_a_rollback_notifies_nobody(queue: Queue, notes: psycopg.Connection[Any]) -> None:
    """G32"""
    polling = poll_listening(queue)

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        queue.enqueue({}, id="undone")
        raise ZeroDivisionError
    assert heard(notes) == []

    queue.enqueue({}, id="kept")
    assert polling.result(PATIENCE)


@pytest.fixture(params=LEVELS)
def level(transactional_db: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """The isolation level of every session."""
    with isolated("default", request.param):
        yield request.param


def test_an_enqueue_between_the_look_and_the_sleep_is_not_missed(level: str, queue: Queue) -> None:
    """G28: the race of a notification after the commit: announced, looked, not yet asleep."""
    looked, go_on = threading.Event(), threading.Event()
    ask = queue.outlook

    def outlook() -> tuple[bool, float]:
        answer = ask()
        assert wakeups.asleep  # the look under the announcement
        looked.set()
        go_on.wait(PATIENCE)
        return answer

    queue.outlook = outlook  # type: ignore[method-assign]
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
    assert looked.wait(PATIENCE)

    other = Queue("emails")
    wakeups_in_process, wakeups.asleep = wakeups.asleep, type(wakeups.asleep)()
    try:
        with transaction.atomic():
            other.enqueue({}, id="a")  # only the server can tell the sleeper now
    finally:
        wakeups.asleep = wakeups_in_process
    go_on.set()

    assert polling.result(PATIENCE)


@pytest.mark.django_db(transaction=True)
def test_a_poll_sleeps_in_a_process_with_more_than_a_thousand_files_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1200 and hard < 1200:
        pytest.skip("so many can't be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    queue = Queue("emails", using="default")
    try:
        assert queue.poll(worker="w", wait=0.2) is None
    finally:
        queue.close()
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_stored_is_enqueued_though_nobody_can_be_told(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """G31: the session is cut between the commit and the notification."""

    def cut_off() -> None:
        other = connection.copy()
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [session])
        other.close()

    with transaction.atomic():
        session = connection.connection.info.backend_pid
        transaction.on_commit(cut_off)
        queue.enqueue({})
    queue.enqueue({})

    assert queue.depth().visible == 2
    assert "nobody could be told that queue=emails has work" in caplog.text


def test_a_wait_does_not_spin_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """G28: it looks at its beginning, when it is about to sleep, and at its end."""
    queue = MemoryQueue("emails")
    looks: list[str] = []
    look = queue.claim_one

    def counted(worker: str, end: float) -> Lease | None:
        looks.append(worker)
        return look(worker, end)

    monkeypatch.setattr(queue, "claim_one", counted)

    assert queue.poll(worker="w", wait=0.3) is None
    assert len(looks) <= 4


def test_a_wake_writes_to_no_descriptor_that_a_close_has_given_back(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's file may have the number by then."""
    with queue.borrowed_sleeper() as sleeper:
        write, written = os.write, list[int]()

        def closed_meanwhile(number: int, data: bytes) -> int:
            closing = in_thread(sleeper.close)
            wait([closing], 0.2)
            os.fstat(number)
            written.append(number)
            return write(number, data)

        monkeypatch.setattr(os, "write", closed_meanwhile)
        sleeper.wake()

    assert written
