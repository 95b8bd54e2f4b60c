"""B58: SQLite has one writer at a time. Everyone waits for it; nobody gives up a task for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest
from django.contrib.auth.models import Group
from django.db import connections, transaction

from django_leasequeue import QueueUnavailableError
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


ENDLESS: Final = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number)
SELECT n, name FROM number LEFT JOIN auth_group ON true
"""


@pytest.fixture
def sqlite(transactional_db: None, fresh_tasks: None) -> Iterator[Site]:
    site = Site("sqlite")
    yield site
    site.close()


def read_then_enqueue(site: Site, first: int) -> None:
    """Every other task from within a transaction that has read before."""
    for number in range(first, first + 50, 2):
        site.enqueue(tasks.add, number, 0)
        with transaction.atomic(using="sqlite"):
            Group.objects.using("sqlite").count()
            site.enqueue(tasks.add, number + 1, 0)


def test_two_workers_and_four_enqueuers_share_a_file_with_a_long_reader(sqlite: Site) -> None:
    """G7"""
    with connections["sqlite"].cursor() as reading:
        reading.execute(ENDLESS)
        reading.fetchone()
        with (
            sqlite.worker(threads=2, poll_interval=0.05) as one,
            sqlite.worker(threads=2, poll_interval=0.05) as two,
        ):
            firsts = range(0, 200, 50)
            enqueuers = [in_thread(partial(read_then_enqueue, sqlite, first)) for first in firsts]
            for enqueuer in enqueuers:
                enqueuer.result(PATIENCE)
            wait_for(lambda: len(tasks.runs) >= 200)
            wait_for(lambda: sqlite.queue.depth().leased == 0)
            assert not one.failed
            assert not two.failed

    assert sorted(tasks.runs) == [(number, 0) for number in range(200)]
    assert sqlite.kinds().count("acked") == 200


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are yet to be made wait a moment for the writer, no longer."""
    config: dict[str, Any] = dict(connections.settings["sqlite"])
    config["OPTIONS"] = config["OPTIONS"] | {"timeout": 0.05}
    monkeypatch.setitem(connections.settings, "sqlite", config)


def write_until(over: threading.Event, writing: threading.Event) -> None:
    """Hold the file's one write transaction."""
    with transaction.atomic(using="sqlite"):
        Group.objects.using("sqlite").create(name="written")
        writing.set()
        over.wait(PATIENCE)


def test_an_acknowledgement_that_finds_it_locked_is_tried_again(
    sqlite: Site, impatient: None
) -> None:
    """G42"""
    result = sqlite.enqueue(tasks.wait_at_the_gate)
    over, writing = threading.Event(), threading.Event()
    with sqlite.worker() as worker:
        wait_for(lambda: tasks.runs == ["at the gate"])
        writer = in_thread(lambda: write_until(over, writing))
        assert writing.wait(PATIENCE)
        tasks.gate.set()
        wait_for(lambda: worker.finisher.outage.since is not None)
        over.set()
        writer.result(PATIENCE)
        wait_for(lambda: "acked" in sqlite.kinds())
        assert not worker.failed

    result.refresh()
    assert (result.return_value, result.attempts) == (True, 1)


def test_an_enqueue_that_finds_it_locked_says_that_nothing_is_stored(
    sqlite: Site, impatient: None
) -> None:
    """G1: after the time that its connection is to wait."""
    over, writing = threading.Event(), threading.Event()
    writer = in_thread(lambda: write_until(over, writing))
    assert writing.wait(PATIENCE)
    try:
        refused = in_thread(lambda: sqlite.queue.enqueue({}))
        with pytest.raises(QueueUnavailableError, match="locked"):
            refused.result(PATIENCE)
    finally:
        over.set()
        writer.result(PATIENCE)

    assert sqlite.kinds() == []
