"""Workers over both databases: as threads of the test, and as processes that take signals."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.dispatch import Signal

from django_leasequeue.compat import task_backends
from django_leasequeue.models import TaskTransition
from django_leasequeue.queue import Queue
from django_leasequeue.worker import Worker
from tests.databases import ALIASES, IDS
from tests.waiting import PATIENCE, in_thread, wait_for

from . import tasks

ROOT = Path(__file__).resolve().parent.parent.parent
DJANGO = [sys.executable, "-m", "django"]


def surroundings() -> dict[str, str]:
    """The environment of a process that works on this test run's databases."""
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    ours = {"DJANGO_SETTINGS_MODULE": "tests.worker.site", "TEST_DATABASES": json.dumps(names)}
    return dict(os.environ) | ours


@pytest.fixture
def fresh_tasks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing has run, the gate is closed; at the end it opens for whoever still waits."""
    tasks.runs.clear()
    tasks.gate.clear()
    caplog.set_level(logging.INFO, logger="django_leasequeue")
    yield
    tasks.gate.set()


class Site:
    """A queue ``work`` in one database, and who works on it."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.alias = f"worker on {using}"
        self.processes: list[subprocess.Popen[str]] = []
        self.workers: list[tuple[Worker, Future[int]]] = []

    @property
    def queue(self) -> Queue:
        return Queue("work", using=self.using)

    def enqueue(self, task: Any, *args: Any, **using: Any) -> Any:
        """Enqueue *task* here; ``refresh()`` its result to see what became of it."""
        return task.using(backend=self.alias, **using).enqueue(*args)

    def drain(self, **options: Any) -> None:
        call_command("leasequeue_worker", backend=self.alias, drain=True, **options)

    def kinds(self) -> list[str]:
        """What the log says happened, in order."""
        rows = TaskTransition.objects.using(self.using).order_by("id")
        return [str(kind) for kind in rows.values_list("kind", flat=True)]

    @contextmanager
    def worker(self, **options: Any) -> Iterator[Worker]:
        """A worker as a thread, stopped at the end."""
        options = {"grace": 10 * PATIENCE} | options  # who needs it fails
        worker = Worker(task_backends[self.alias], ["urgent", "work"], **options)  # type: ignore[arg-type]
        ended = in_thread(worker.run)
        try:
            yield worker
        finally:
            worker.stop()
            wait_for(worker.stopping.is_set)
            tasks.gate.set()
            assert ended.result(PATIENCE) is not None
            for thread in worker.crew.threads:  # for which the worker waits only for a moment
                thread.join(PATIENCE)
                assert not thread.is_alive()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A worker as a process. Its log goes to ``process.lines``."""
        process = subprocess.Popen(
            [*DJANGO, "leasequeue_worker", "--backend", self.alias, *arguments],
            cwd=ROOT,
            env=surroundings() | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        collect_lines(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.reader.join(5)  # type: ignore[attr-defined]
            process.stderr.close()  # type: ignore[union-attr]


def collect_lines(process: Any) -> None:
    process.lines = []

    def read() -> None:
        for line in process.stderr:
            process.lines.append(line)

    process.reader = threading.Thread(target=read, daemon=True)
    process.reader.start()


def wait_until_said(process: Any, words: str) -> None:
    def said() -> bool:
        assert process.poll() is None, "".join(process.lines)
        return any(words in line for line in process.lines)

    wait_for(said)


def sessions(state: str = "%") -> int:
    """How many sessions of the test's database there are beside the test's own, in that state."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state LIKE %s",
            [state],
        )
        return int(cursor.fetchone()[0])


def terminate_sessions() -> None:
    """Cut off everybody else who works on the test's database."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@contextmanager
def receiving(signal: Signal, receiver: Callable[..., None]) -> Iterator[None]:
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's clock stands still: a busy machine takes its time between two steps."""
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)


@pytest.fixture
def no_nohup() -> Iterator[None]:
    """Whoever runs the tests may ignore SIGHUP."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.fixture(params=ALIASES, ids=IDS)
def site(
    request: pytest.FixtureRequest, transactional_db: None, fresh_tasks: None
) -> Iterator[Site]:
    site = Site(request.param)
    yield site
    site.close()


@pytest.fixture
def server(site: Site) -> Site:
    """A site where others can write while a task holds a transaction."""
    if connections[site.using].vendor == "sqlite":
        pytest.skip("SQLite has one writer")
    return site


@pytest.fixture
def postgres(transactional_db: None, fresh_tasks: None) -> Iterator[Site]:
    """A site for what only a server's sessions can show, or is the same on both."""
    site = Site("default")
    yield site
    site.close()
