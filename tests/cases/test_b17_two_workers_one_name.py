"""B17: a name that is made up is nobody else's; one that is configured has one live bearer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_leasequeue.queue import Queue
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.worker.names import (
    EXPIRY_SECONDS,
    NAME_CLASS,
    Hold,
    RecordHold,
    SessionHold,
    hold_of,
)
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site, wait_until_said

pytestmark = on_all


def test_a_worker_without_a_name_takes_nothing_from_another(site: Site) -> None:
    """G45: host name and process number are the same in many containers."""
    site.enqueue(tasks.sleep_long_at_first, 60)
    wait_until_said(site.start(), "asleep")

    second = site.start("--max-tasks", "1")
    wait_until_said(second, "started")
    site.enqueue(tasks.add, 1, 1)

    assert second.wait(PATIENCE) == 0
    assert site.kinds() == ["enqueued", "leased", "enqueued", "leased", "acked"]


def test_a_second_live_worker_of_a_name_refuses_to_start(site: Site) -> None:
    """G45"""
    site.enqueue(tasks.sleep_long_at_first, 60)
    first = site.start("--name", "w")
    wait_until_said(first, "asleep")

    second: Any = site.start("--name", "w")

    assert second.wait(PATIENCE) == 1
    second.reader.join(PATIENCE)
    assert second.lines == ["CommandError: another live worker is named 'w'\n"]
    assert first.poll() is None
    assert site.kinds() == ["enqueued", "leased"]


def test_two_names_are_two_workers(site: Site) -> None:
    """G45"""
    for name in ("w", "W"):
        wait_until_said(site.start("--name", name), "started")


def test_what_a_killed_worker_held_comes_back_when_its_name_does(site: Site) -> None:
    """G45: at once, though its lease of five minutes has hardly begun."""
    result = site.enqueue(tasks.sleep_long_at_first, 60)
    first = site.start("--name", "w")
    wait_until_said(first, "asleep")

    first.kill()
    second = site.start("--name", "w", "--max-tasks", "1")

    assert second.wait(PATIENCE) == 0
    result.refresh()
    assert (result.return_value, result.attempts) == (2, 2)
    assert site.kinds() == ["enqueued", "leased", "lapsed", "leased", "acked"]


def test_a_stopped_workers_name_is_free_at_once(site: Site) -> None:
    """G45"""
    first = site.start("--name", "w")
    wait_until_said(first, "started")
    first.terminate()
    assert first.wait(PATIENCE) == 0

    other = hold_of("w", site.queue)

    assert other.take()
    other.let_go()


@pytest.fixture
def other(postgres: Site) -> Iterator[Hold]:
    """Somebody else who wants the name."""
    hold = hold_of("w", postgres.queue)
    yield hold
    hold.let_go()


def test_a_name_lost_with_its_session_is_taken_again(postgres: Site, other: Hold) -> None:
    """G45"""
    worker = postgres.start("--name", "w")
    wait_until_said(worker, "started")

    lost = end_sessions_that_hold_a_name()

    wait_for(lambda: sessions_that_hold_a_name() not in ([], lost))
    assert not other.take()
    assert worker.poll() is None


def test_a_worker_whose_name_was_taken_meanwhile_stops(postgres: Site, other: Hold) -> None:
    """G45"""
    worker: Any = postgres.start("--name", "w")
    wait_until_said(worker, "started")
    assert not other.take()

    end_sessions_that_hold_a_name()
    wait_for(other.take)

    assert worker.wait(PATIENCE) == 1
    worker.reader.join(PATIENCE)
    assert worker.lines[-1] == "CommandError: another worker has taken the name 'w'\n"


def sessions_that_hold_a_name() -> list[int]:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_locks JOIN pg_database AS place ON place.oid = database"
            " WHERE locktype = 'advisory' AND classid = %s AND datname = current_database()",
            [NAME_CLASS],
        )
        return [pid for (pid,) in cursor.fetchall()]


def end_sessions_that_hold_a_name() -> list[int]:
    held = sessions_that_hold_a_name()
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", [held])
    return held


def test_one_of_two_has_a_name_until_it_lets_go(site: Site) -> None:
    """G45: and a server holds it by itself, so that it is free when a process is gone."""
    first, second = hold_of("w", site.queue), hold_of("w", site.queue)

    assert isinstance(first, RecordHold if site.using == "sqlite" else SessionHold)
    assert [first.take(), second.take(), first.take()] == [True, False, True]
    first.let_go()
    wait_for(second.take)  # a server may take a moment to see that a session has ended
    second.let_go()


def test_one_of_two_has_a_record_until_it_lets_go(site: Site) -> None:
    """G45: a proxy makes a server's own lock worth nothing."""
    first, second = RecordHold("w", site.queue), RecordHold("w", site.queue)

    assert [first.take(), second.take(), first.take()] == [True, False, True]
    first.let_go()
    assert second.take()


def test_a_record_that_is_not_renewed_expires(site: Site, clock: FakeClock) -> None:
    """G45"""
    queue = Queue("work", using=site.using, clock=clock)
    first, second = RecordHold("w", queue), RecordHold("w", queue)
    first.take()

    clock.advance(EXPIRY_SECONDS - 1)
    assert not second.take()
    first.take()
    clock.advance(EXPIRY_SECONDS - 1)
    assert not second.take()

    clock.advance(1)
    assert second.take()
    assert not first.take()
