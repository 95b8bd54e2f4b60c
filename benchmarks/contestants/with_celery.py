"""Celery on Redis: no results, acknowledged late, so at least once. Redis keeps nothing on disk."""

from __future__ import annotations

import os
from typing import Final

import redis
from celery import Celery

from benchmarks.marks import mark

PACKAGES: Final = ["celery", "redis"]
URL: Final = os.environ["BENCH_REDIS"]

app = Celery("contestant", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=100,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")  # type: ignore[untyped-decorator,unused-ignore]
def noop(number: int) -> None:
    mark(number)


def prepare() -> None:
    """Redis needs nothing."""


def empty() -> None:
    redis.Redis.from_url(URL.replace("redis+socket", "unix")).flushdb()


def enqueue(number: int) -> None:
    noop.delay(number)


def workers(processes: int) -> list[list[str]]:
    command = ["-m", "celery", "-A", __spec__.name, "worker", "-c", str(processes)]
    quiet = ["-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [[*command, *quiet]]
