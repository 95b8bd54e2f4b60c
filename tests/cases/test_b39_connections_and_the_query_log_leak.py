"""B39: a worker's sessions are few, and end with it; its query log doesn't grow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connections

from django_leasequeue.worker import upkeep
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site, sessions

pytestmark = on_all


THREADS = 4
OWN_SESSIONS = 5  # to claim, to renew, to record, to listen, and for upkeep now and then


@pytest.mark.parametrize("max_age", [0, 600, None])
def test_sessions_are_bounded_by_the_threads_and_none_is_left(
    postgres: Site, monkeypatch: pytest.MonkeyPatch, max_age: int | None
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", max_age)
    for _ in range(20):
        postgres.enqueue(tasks.count_groups)
        postgres.enqueue(tasks.count_groups_later)

    with postgres.worker(threads=THREADS):
        while postgres.kinds().count("acked") < 40:
            # A server may take a moment to see that a session has ended.
            wait_for(lambda: sessions() <= THREADS + OWN_SESSIONS)

    wait_for(lambda: sessions() == 0)


def test_tasks_that_empty_the_sites_pool_keep_the_worker_from_nothing(postgres: Site) -> None:
    """G39: it renews, claims, records and listens outside the pool."""
    for _ in range(2):
        postgres.enqueue(tasks.keep_a_connection, 4 / 3 * tasks.RENEWED)

    pool = json.dumps({"min_size": 1, "max_size": 2})
    worker: Any = postgres.start("--threads=2", POOL=pool)
    while postgres.kinds().count("acked") < 2:
        wait_for(lambda: sessions() <= 2 + OWN_SESSIONS)
        assert worker.poll() is None

    kinds = postgres.kinds()
    assert kinds.count("heartbeat") >= 4
    assert "lapsed" not in kinds
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    wait_for(lambda: sessions() == 0)


def test_max_age_0_closes_a_connection_after_its_use(
    postgres: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 3600.0)  # until the next time it would need one
    postgres.enqueue(tasks.count_groups)

    with postgres.worker():
        wait_for(lambda: "acked" in postgres.kinds())

        wait_for(lambda: sessions() == 1)  # the one that listens


def test_the_query_log_begins_anew_with_each_task(site: Site, settings: object) -> None:
    settings.DEBUG = True  # type: ignore[attr-defined]
    results = [site.enqueue(tasks.count_logged_queries) for _ in range(9)]

    site.drain()

    for result in results:
        result.refresh()
    # Not all the same: MariaDB's log begins with what opened the connection.
    assert max(result.return_value for result in results) < 5
