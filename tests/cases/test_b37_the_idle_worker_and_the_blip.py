"""B37: an idle worker outlives its database's absence, quietly, and can be stopped meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import environ
import psycopg
import pytest
from django.db import connections

from django_leasequeue import QueueUnavailableError
from django_leasequeue.compat import TaskResultStatus
from example_project import devdb
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import DJANGO, ROOT, Site, terminate_sessions, wait_until_said

pytestmark = on_all


def test_a_worker_whose_sessions_are_cut_off_does_the_next_task(postgres: Site) -> None:
    """G42"""
    postgres.enqueue(tasks.add, 0, 0)

    with postgres.worker() as worker:
        for number in range(3):
            wait_for(lambda count=number + 1: postgres.kinds().count("acked") == count)  # type: ignore[misc]
            terminate_sessions()
            postgres.enqueue(tasks.add, number, 1)
        wait_for(lambda: postgres.kinds().count("acked") == 4)
        assert not worker.failed


def test_a_task_that_runs_meanwhile_is_recorded_afterwards(postgres: Site) -> None:
    """G42"""
    result = postgres.enqueue(tasks.wait_at_the_gate)

    with postgres.worker():
        wait_for(lambda: tasks.runs == ["at the gate"])
        terminate_sessions()
        tasks.gate.set()
        wait_for(lambda: "acked" in postgres.kinds())

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)


def test_a_name_that_no_longer_resolves_is_waited_for(
    postgres: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G42: what is connected stays so; the worker's sessions are cut off, and made anew."""
    connect = psycopg.connect

    def unresolved(*args: Any, **place: Any) -> Any:
        return connect(*args, **place | {"host": "nowhere.invalid"})

    postgres.enqueue(tasks.add, 0, 0)
    with postgres.worker(poll_interval=0.1) as worker:
        wait_for(lambda: "acked" in postgres.kinds())
        with monkeypatch.context() as change:
            change.setattr(psycopg, "connect", unresolved)
            terminate_sessions()
            wait_for(lambda: "nowhere.invalid" in caplog.text)
        postgres.enqueue(tasks.add, 1, 1)
        wait_for(lambda: postgres.kinds().count("acked") == 2)
        assert not worker.failed


@pytest.mark.parametrize("max_age", [0, None])
def test_a_server_that_takes_no_writes_is_waited_for(
    postgres: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    max_age: int | None,
) -> None:
    """G42: its sessions outlive a fail-over, and would stay on the wrong server for ever."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", max_age)
    postgres.enqueue(tasks.add, 0, 0)
    with postgres.worker(poll_interval=0.1) as worker:
        wait_for(lambda: "acked" in postgres.kinds())
        with read_only("default"):
            wait_for(lambda: "read-only transaction" in caplog.text)
            with pytest.raises(QueueUnavailableError):
                postgres.queue.enqueue({})

        postgres.enqueue(tasks.add, 1, 1)
        wait_for(lambda: postgres.kinds().count("acked") == 2)
        assert not worker.failed


def test_what_runs_while_the_server_takes_no_writes_is_recorded_afterwards(
    postgres: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G42: under its one lease."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    result = postgres.enqueue(tasks.wait_at_the_gate)
    with postgres.worker() as worker:
        wait_for(lambda: tasks.runs == ["at the gate"])
        with read_only("default"):
            tasks.gate.set()
            wait_for(lambda: bool(worker.deliveries.finishing))
            wait_for(lambda: "read-only transaction" in caplog.text)
        wait_for(lambda: "acked" in postgres.kinds())
        assert not worker.failed

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)


@contextmanager
def read_only(alias: str) -> Iterator[None]:
    """All sessions begin anew on a database that takes no writes; none does at the end."""
    connection = connections[alias]
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    terminate_sessions()
    connection.close()
    try:
        yield
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
        connection.close()


@pytest.fixture
def server() -> Iterator[devdb.Cluster]:
    """A server of its own, to stop and start."""
    try:
        cluster = devdb.start(ROOT, keep=False)
    except devdb.DevDBError as error:
        pytest.skip(f"no private server: {error}")
    yield cluster
    cluster.close()


@contextmanager
def our_sessions_on(server: devdb.Cluster) -> Iterator[None]:
    """The test's own sessions, too, are on *server*."""
    connection = connections["default"]
    former = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict |= environ.Env.db_url_config(server.url)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict |= former


def test_a_stopped_server_is_waited_for_and_sigterm_ends_the_wait(server: devdb.Cluster) -> None:
    """G42"""
    site = Site("default")
    place = {"DATABASE_URL": server.url, "TEST_DATABASES": "{}"}
    where = dict(os.environ) | place | {"DJANGO_SETTINGS_MODULE": "tests.worker.site"}
    subprocess.run([*DJANGO, "migrate", "-v0"], check=True, cwd=ROOT, env=where)
    process: Any = site.start("--grace", "60", **place)
    try:
        wait_until_said(process, "started")
        with our_sessions_on(server):
            server.stop()
            wait_until_said(process, "outage")
            with pytest.raises(QueueUnavailableError):
                site.enqueue(tasks.add, 1, 1)
            spent, said, before = cpu_seconds(process.pid), len(process.lines), time.monotonic()
            wait_for(lambda: time.monotonic() - before > 2)
            assert cpu_seconds(process.pid) - spent < 0.5
            assert len(process.lines) - said <= 3 + time.monotonic() - before

            server.start()
            wait_until_said(process, "the database is back")
            site.enqueue(tasks.add, 1, 1)
            wait_until_said(process, "acked")

        server.stop()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        site.close()


def test_a_host_without_an_address_is_waited_for() -> None:
    """G42"""
    site = Site("default")
    place = {"DATABASE_URL": "postgres://a@nowhere.invalid:5432/b", "TEST_DATABASES": "{}"}
    process: Any = site.start("--name", "w", **place)
    try:
        wait_until_said(process, "outage")

        process.terminate()

        assert process.wait(PATIENCE) == 0
        process.reader.join(PATIENCE)
        assert "Traceback" not in "".join(process.lines)
    finally:
        site.close()


def test_a_server_that_is_away_at_the_start_is_waited_for(server: devdb.Cluster) -> None:
    """G42"""
    site = Site("default")
    place = {"DATABASE_URL": server.url, "TEST_DATABASES": "{}"}
    server.stop()
    process: Any = site.start("--name", "w", **place)
    try:
        wait_until_said(process, "outage")

        server.start()

        assert process.wait(PATIENCE) == 1
        process.reader.join(PATIENCE)
        assert process.lines[-1].startswith("CommandError: the queue's tables are not up to date")
        assert "Traceback" not in "".join(process.lines)
    finally:
        site.close()


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
