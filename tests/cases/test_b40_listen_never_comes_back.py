"""B40: a LISTEN session that is cut off is opened again, and wake-ups are prompt after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db import connection

from django_leasequeue import Queue, wakeups
from tests.waiting import in_thread, wait_for

LISTENERS = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND pid IN (
       SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s)
"""


@pytest.fixture
def queue(transactional_db: None) -> Iterator[Queue]:
    """A queue whose poll interval never helps."""
    if connection.vendor != "postgresql":
        pytest.skip("LISTEN needs PostgreSQL: DATABASE_URL names another database")
    queue = Queue("emails")
    queue.options = replace(queue.options, poll_interval=3600)
    yield queue
    queue.close()


def listeners() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(LISTENERS, [wakeups.LOCK_CLASS])
        return {pid for (pid,) in cursor.fetchall()}


def test_cut_off_three_times_it_listens_again_each_time(queue: Queue) -> None:
    """G31"""
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=120))
    for _ in range(3):
        wait_for(lambda: polling.done() or bool(listeners()))
        [cut_off] = listeners()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [cut_off])
        wait_for(lambda cut_off=cut_off: bool(listeners() - {cut_off}))  # type: ignore[misc]

    queue.enqueue({}, id="a")

    lease = polling.result(timeout=10)
    assert lease
    assert lease.id == "a"


def test_a_task_of_the_time_between_is_found_by_the_look_after_it(queue: Queue) -> None:
    """G31"""
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=120))
    wait_for(lambda: polling.done() or bool(listeners()))
    wakeups_in_process, wakeups.asleep = wakeups.asleep, type(wakeups.asleep)()
    try:
        [cut_off] = listeners()
        with connection.cursor() as cursor:
            # Waits until it is gone: when the notification is due, nobody listens any more.
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [cut_off])
        queue.enqueue({}, id="a")
    finally:
        wakeups.asleep = wakeups_in_process

    assert polling.result(timeout=10)
