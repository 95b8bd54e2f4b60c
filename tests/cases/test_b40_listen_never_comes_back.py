"""B40: a LISTEN session that is cut off is opened again, and wake-ups are prompt after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_leasequeue import Lease, Queue, wakeups
from example_project import devdb
from tests.promises.test_restart import ALIAS, kill, server
from tests.waiting import PATIENCE, in_thread, wait_for

__all__ = ["server"]

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


def listeners(using: str = "default") -> set[int]:
    with connections[using].cursor() as cursor:
        cursor.execute(LISTENERS, [wakeups.LOCK_CLASS])
        return {pid for (pid,) in cursor.fetchall()}


def test_cut_off_three_times_it_listens_again_each_time_and_never_spins(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G31"""
    looks: list[None] = []
    claim = queue.store.claim

    def counted(name: str, **how: Any) -> list[Lease]:
        looks.append(None)
        return claim(name, **how)

    monkeypatch.setattr(queue.store, "claim", counted)
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
    for _ in range(3):
        wait_for(lambda: polling.done() or bool(listeners()))
        [cut_off] = listeners()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [cut_off])
        wait_for(lambda cut_off=cut_off: bool(listeners() - {cut_off}))  # type: ignore[misc]

    queue.enqueue({}, id="a")

    lease = polling.result(PATIENCE)
    assert lease
    assert lease.id == "a"
    assert len(looks) <= 15, "when it is cut off, when it listens again, and a few more"


def test_a_task_of_the_time_between_is_found_by_the_look_after_it(queue: Queue) -> None:
    """G31"""
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
    wait_for(lambda: polling.done() or bool(listeners()))
    with told_by_the_server_alone():
        [cut_off] = listeners()
        with connection.cursor() as cursor:
            # Waits until it is gone: when the notification is due, nobody listens any more.
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [cut_off])
        queue.enqueue({}, id="a")

    assert polling.result(PATIENCE)


def test_after_a_restart_of_the_server_it_listens_again(
    server: devdb.Cluster, django_db_blocker: Any
) -> None:
    """G31"""
    with django_db_blocker.unblock():
        call_command("migrate", "leasequeue", database=ALIAS, verbosity=0)
        queue = Queue("emails", using=ALIAS)
        queue.options = replace(queue.options, poll_interval=3600)
        polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
        wait_for(lambda: polling.done() or bool(listeners(ALIAS)))

        kill(server)
        server.start()

        wait_for(lambda: polling.done() or bool(listeners(ALIAS)))
        with told_by_the_server_alone():
            queue.enqueue({}, id="a")
            assert polling.result(PATIENCE)
        queue.close()


@contextmanager
def told_by_the_server_alone() -> Iterator[None]:
    """An enqueue finds nobody asleep in this process."""
    in_process, wakeups.asleep = wakeups.asleep, type(wakeups.asleep)()
    try:
        yield
    finally:
        wakeups.asleep = in_process
