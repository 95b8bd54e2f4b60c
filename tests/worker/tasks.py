"""Tasks for the worker's tests, each doing one thing that tasks do."""

from __future__ import annotations

import asyncio
from functools import partial

from django_leasequeue.tasks import task

task = partial(task, backend="worker on default", queue_name="work")


@task()
def add(a: int, b: int) -> int:
    return a + b


@task()
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task(max_attempts=2, backoff=lambda error, result: 0.0)
def fail(message: str) -> None:
    raise ValueError(message)
