"""B33: a signal in the middle of a claim neither tears it nor leaves its lease behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db.backends.signals import connection_created

from django_leasequeue.compat import TaskResultStatus, task_backends
from django_leasequeue.worker import Worker
from django_leasequeue.worker.shutdown import stop_on_signals
from tests.databases import on_all
from tests.waiting import PATIENCE
from tests.worker import tasks
from tests.worker.conftest import Site, wait_until_said

pytestmark = on_all


@contextmanager
def signal_sent_during_claim(signum: int, milliseconds: int) -> Iterator[None]:
    """*signum* comes that long after the first claim is sent."""
    sent = threading.Event()

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if threading.current_thread().name == "claimer" and not sent.is_set():
            sent.set()
            threading.Timer(milliseconds / 1000, os.kill, (os.getpid(), signum)).start()
        return execute(sql, params, many, context)

    def prepare(connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(watch)

    connection_created.connect(prepare)
    try:
        yield
    finally:
        connection_created.disconnect(prepare)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_task_is_acked_or_ready_as_if_nobody_had_claimed_it(site: Site, signum: int) -> None:
    """G40"""
    for milliseconds in range(0, 20, 2):
        result = site.enqueue(tasks.add, 1, 2)
        worker = Worker(task_backends[site.alias], ["work"])  # type: ignore[arg-type]

        with signal_sent_during_claim(signum, milliseconds), stop_on_signals(worker.stop):
            status = worker.run()

        result.refresh()
        assert status == 0
        if result.status != TaskResultStatus.SUCCESSFUL:
            assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
            site.queue.cancel(result.id)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_idle_worker_leaves_at_once_and_in_peace(
    postgres: Site, no_nohup: None, signum: int
) -> None:
    """G40"""
    process: Any = postgres.start()
    wait_until_said(process, "started")

    process.send_signal(signum)

    assert process.wait(PATIENCE) == 0
    process.reader.join(PATIENCE)
    assert "Traceback" not in "".join(process.lines)
