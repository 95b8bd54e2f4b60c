"""Parts of the queue, by pytest-benchmark: to see a regression, and where the time goes.

    python3 -m example_project bench micro

No part of the test suite, and nothing is asserted about time. The server keeps nothing on disk, as
the tests', so what shows is computing and round trips. ``--benchmark-autosave`` before a change and
``--benchmark-compare`` behind it show what the change did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from django_leasequeue import Lease, NewTask, Queue
from django_leasequeue.compat import task_backends
from django_leasequeue.worker import Worker
from tests.worker import tasks

ALIAS: Final = "worker on default"
TASKS: Final = 1_000  # for a worker
BACKLOG: Final = 5_000
ROUNDS: Final = 40

pytestmark = pytest.mark.django_db(transaction=True)
sizes = pytest.mark.parametrize("size", [1, 100])


@pytest.fixture
def queue() -> Queue:
    return Queue("work", using="default")


def calls(count: int, task: Any = tasks.add) -> list[NewTask]:
    call = {"args": [1, 1], "kwargs": {}}
    return [NewTask(payload=call, path=task.module_path) for _ in range(count)]


def repeat(benchmark: Any, act: Callable[..., Any], setup: Callable[[], Any], size: int) -> None:
    benchmark.pedantic(act, setup=setup, rounds=ROUNDS, warmup_rounds=3)
    per_task(benchmark, size)


def per_task(benchmark: Any, size: int) -> None:
    benchmark.extra_info["us_per_task"] = round(benchmark.stats.stats.median / size * 1e6, 1)
    print(f"\n{benchmark.name}: {benchmark.extra_info['us_per_task']} µs a task")


@pytest.mark.benchmark(group="enqueue")
def test_enqueue_a_task(benchmark: Any) -> None:
    benchmark(tasks.add.enqueue, 1, 1)


@pytest.mark.benchmark(group="enqueue")
def test_enqueue_a_thousand_tasks(benchmark: Any, queue: Queue) -> None:
    benchmark(queue.enqueue_many, calls(1_000))
    per_task(benchmark, 1_000)


@pytest.mark.benchmark(group="claim")
@sizes
def test_claim(benchmark: Any, queue: Queue, size: int) -> None:
    queue.enqueue_many(calls(BACKLOG))

    def claim() -> list[Lease]:
        return queue.claim(worker="w", limit=size)

    repeat(benchmark, claim, lambda: None, size)


@pytest.mark.benchmark(group="complete")
@sizes
def test_complete(benchmark: Any, queue: Queue, size: int) -> None:
    queue.enqueue_many(calls(BACKLOG))

    def claimed() -> tuple[list[list[tuple[Lease, None]]], dict[str, Any]]:
        leases = queue.claim(worker="w", limit=size)
        return [[(lease, None) for lease in leases]], {}

    repeat(benchmark, queue.complete_many, claimed, size)


@pytest.mark.benchmark(group="worker")
@pytest.mark.parametrize("task", [tasks.add, tasks.add_later], ids=["sync", "async"])
def test_work_through_a_thousand_tasks(benchmark: Any, queue: Queue, task: Any) -> None:
    backend: Any = task_backends[ALIAS]

    def worker() -> tuple[list[Worker], dict[str, Any]]:
        queue.enqueue_many(calls(TASKS, task))
        return [Worker(backend, ["work"], drain=True)], {}

    benchmark.pedantic(Worker.run, setup=worker, rounds=5, warmup_rounds=1)
    per_task(benchmark, TASKS)
    assert queue.depth().dead == 0
