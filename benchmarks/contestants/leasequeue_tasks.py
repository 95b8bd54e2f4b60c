from __future__ import annotations

from benchmarks import computing
from benchmarks.marks import mark
from django_leasequeue.tasks import task


@task
def noop(number: int) -> None:
    mark(number)


@task
def compute(number: int) -> int:
    mark(number)
    return computing.compute()
