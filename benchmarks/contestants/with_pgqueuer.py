"""pgqueuer over asyncpg and uvloop, claims of 100: its fastest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.marks import mark

PACKAGES: Final = ["pgqueuer", "asyncpg", "uvloop"]

connection: Any = None
queries: Any = None


async def prepare() -> None:
    global connection, queries
    connection = await asyncpg.connect(os.environ["BENCH_DSN"])
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()


async def empty() -> None:
    await connection.execute("TRUNCATE pgqueuer, pgqueuer_log")


async def enqueue(number: int) -> None:
    await queries.enqueue("noop", b"%d" % number)


async def enqueue_many(numbers: Sequence[int]) -> None:
    payloads = [b"%d" % number for number in numbers]
    await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


def workers(processes: int) -> list[list[str]]:
    return [["-m", __spec__.name]] * processes


async def work() -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["BENCH_DSN"])))

    @queuer.entrypoint("noop")  # type: ignore[untyped-decorator,unused-ignore]
    async def noop(job: Any) -> None:
        mark(int(job.payload))

    await queuer.run(batch_size=100)


if __name__ == "__main__":
    uvloop.run(work())
