"""B43: sessions that aren't ours: one warning a worker, and everything but the wake-ups works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_leasequeue.models import WorkerName
from tests.databases import on_all
from tests.pgbouncer import pgbouncer
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site, wait_until_said

pytestmark = on_all

WORKERS = 4
SESSIONS = 2
TASKS = 200
WARNING = "notifications don't arrive"


@pytest.fixture
def proxy(postgres: Site) -> Iterator[str]:
    with pgbouncer(sessions=SESSIONS) as url:
        yield url


@pytest.mark.timeout(300)
def test_four_workers_over_two_sessions_do_each_task_once(postgres: Site, proxy: str) -> None:
    """G47"""
    names = [f"w{number}" for number in range(WORKERS)]
    crew: list[Any] = []
    for name in names:
        crew.append(postgres.start("--poll-interval=0.2", "--name", name, DATABASE_URL=proxy))
        wait_until_said(crew[-1], WARNING)  # one by one: a busy machine starts four slowly
    # The tasks are enqueued by a task, and that is through the proxy, too.
    postgres.enqueue(tasks.enqueue_many, TASKS)
    postgres.enqueue(tasks.take_long, 4 / 3 * tasks.RENEWED)

    wait_for(lambda: postgres.kinds().count("acked") == TASKS + 2, 120)

    kinds = postgres.kinds()
    assert (kinds.count("leased"), kinds.count("lapsed")) == (TASKS + 2, 0)
    assert "heartbeat" in kinds
    # A session lock would be worth nothing here.
    held = WorkerName.objects.filter(name__in=names)
    assert held.count() == WORKERS
    for worker in crew:
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
        worker.reader.join(PATIENCE)
        assert sum(WARNING in line for line in worker.lines) == 1
        problems = [line for line in worker.lines if "outage" in line or "Error" in line]
        assert problems == []
    assert held.count() == 0


def test_a_direct_connection_to_listen_on_brings_prompt_wake_ups(
    postgres: Site, proxy: str
) -> None:
    """G47"""
    direct = os.environ["DATABASE_URL"]
    worker: Any = postgres.start("--poll-interval", "300", DATABASE_URL=proxy, LISTEN_URL=direct)
    wait_until_said(worker, "started")
    wait_for(somebody_listens)

    for number in range(3):
        postgres.enqueue(tasks.add, number, 0)
        wait_for(lambda count=number + 1: postgres.kinds().count("acked") == count)  # type: ignore[misc]

    assert not any(WARNING in line for line in worker.lines)


def somebody_listens() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database AS place ON place.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def test_a_named_worker_with_a_direct_connection_holds_its_name_by_it(
    postgres: Site, proxy: str
) -> None:
    """G45"""
    direct = os.environ["DATABASE_URL"]
    wait_until_said(postgres.start("--name", "w", DATABASE_URL=proxy, LISTEN_URL=direct), "started")

    assert not WorkerName.objects.exists()
