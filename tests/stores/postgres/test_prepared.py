"""Statements are prepared where the session is ours to prepare in, and nothing else changes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from django.db import close_old_connections, connection, connections, transaction

from django_leasequeue.queue import Queue
from django_leasequeue.stores.postgres.statements import PREPARED_FROM, Cursor, kept_of

pytestmark = pytest.mark.django_db(transaction=True)


def prepared() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql")
        return int(cursor.fetchone()[0])


@pytest.fixture
def queue() -> Queue:
    connection.close()  # none of another test's
    return Queue("q")


def enqueue_often(queue: Queue) -> None:
    for number in range(PREPARED_FROM + 2):
        queue.enqueue(number)


def test_on_a_direct_connection_they_are_planned_once(queue: Queue) -> None:
    enqueue_often(queue)
    assert prepared() == 2  # to store, and to look for who sleeps


def test_on_one_that_may_change_under_us_they_are_not(queue: Queue) -> None:
    connection.ensure_connection()
    kept_of(connection.connection).lasts = False
    enqueue_often(queue)
    assert prepared() == 0


def test_the_site_s_own_statements_are_as_the_site_wants_them(queue: Queue) -> None:
    enqueue_often(queue)
    assert connection.connection.prepare_threshold is None


def test_a_lone_enqueue_on_a_connection_prepares_nothing(queue: Queue) -> None:
    """As where each request has a connection of its own: that would be a round trip more."""
    queue.enqueue(1)
    assert prepared() == 0


def test_a_site_that_prepares_on_its_own_goes_on_doing_so(queue: Queue) -> None:
    """The driver then throws away all that is prepared where something is rolled back."""
    connection.ensure_connection()
    connection.connection.prepare_threshold = 0
    enqueue_often(queue)
    with transaction.atomic():
        queue.enqueue("undone")
        transaction.set_rollback(True)
    enqueue_often(queue)
    with transaction.atomic():
        queue.enqueue("one more")
    assert queue.depth().visible == 2 * (PREPARED_FROM + 2) + 1


def test_an_interrupt_after_it_was_prepared_costs_nobody_the_connection(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server would refuse, for ever, to prepare it once more."""
    for number in range(PREPARED_FROM - 1):
        queue.enqueue(number)
    answer = Cursor.answer

    def interrupted(cursor: Cursor) -> None:
        answer(cursor)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Cursor, "answer", interrupted)
        queue.enqueue("interrupted")
    queue.enqueue("after it")

    assert queue.depth().visible == PREPARED_FROM


@pytest.mark.parametrize("words", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_a_site_may_throw_them_away(queue: Queue, words: str) -> None:
    enqueue_often(queue)
    with connection.cursor() as cursor:
        cursor.execute(words)
    enqueue_often(queue)
    assert queue.depth().visible == 2 * (PREPARED_FROM + 2)


def test_a_table_may_change_under_them(queue: Queue) -> None:
    enqueue_often(queue)
    for table in ("task", "transition"):
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE leasequeue_{table} ADD COLUMN later text")
    try:
        enqueue_often(queue)
        assert len(queue.claim(worker="w", limit=100)) == 2 * (PREPARED_FROM + 2)
    finally:
        for table in ("task", "transition"):
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE leasequeue_{table} DROP COLUMN later")


def test_a_connection_that_is_looked_after_is_opened_anew(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``CONN_HEALTH_CHECKS``: a request's first query may be ours, and the server restarted."""
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    enqueue_often(queue)
    with closing(connections["default"].copy()) as other, other.cursor() as cursor:
        pid = connection.connection.info.backend_pid
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    close_old_connections()  # as each request does
    enqueue_often(queue)
    assert queue.depth().visible == 2 * (PREPARED_FROM + 2)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("setting", ["client_encoding = LATIN9", "IntervalStyle = iso_8601"])
def test_a_session_may_write_and_encode_as_the_site_likes(
    queue: Queue, settings: Any, setting: str, *, debug: bool
) -> None:
    """What is stored is what was given; another session, a worker's, reads it so."""
    settings.DEBUG = debug
    given = "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n, 5 \N{EURO SIGN}"
    with connection.cursor() as cursor:
        cursor.execute(f"SET {setting}")
    for number in range(PREPARED_FROM + 1):
        queue.enqueue(given, id=f"{given} {number}")
    queue.enqueue_many([{"payload": given, "tenant": given}, {"payload": given}])
    assert [lease.payload for lease in queue.claim(worker="w", limit=2)] == [given] * 2

    connection.close()
    leases = queue.claim(worker="w", limit=100)
    assert {lease.payload for lease in leases} == {given}
    assert len(leases) == PREPARED_FROM + 1
