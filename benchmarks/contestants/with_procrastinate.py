"""procrastinate with its psycopg connector, async tasks, ten at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from procrastinate import App, PsycopgConnector

from benchmarks.marks import mark

PACKAGES: Final = ["procrastinate", "psycopg"]

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_DSN"], min_size=2, max_size=10))


@app.task(name="noop", queue="default")  # type: ignore[untyped-decorator,unused-ignore]
async def noop(number: int) -> None:
    mark(number)


def prepare() -> None:
    app.open()
    app.schema_manager.apply_schema()


def empty() -> None:
    sync = app.connector.get_sync_connector()
    sync.execute_query("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")


def enqueue(number: int) -> None:
    noop.defer(number=number)


def enqueue_many(numbers: Sequence[int]) -> None:
    noop.batch_defer(*({"number": number} for number in numbers))


def workers(processes: int) -> list[list[str]]:
    quiet = ["-m", "procrastinate", "--log-level", "warning", "--app", f"{__name__}.app"]
    return [[*quiet, "worker", "--concurrency", "10"]] * processes
