"""Tasks for the tests of the backend."""

from __future__ import annotations

from typing import Any

from django_leasequeue.compat import TaskContext
from django_leasequeue.tasks import task


def patiently(error: BaseException, result: Any) -> float | None:
    """Each attempt waits ten seconds longer; a KeyError isn't worth another one."""
    return None if isinstance(error, KeyError) else 10.0 * result.attempts


@task(queue_name="mail")
def send(to: str, *, subject: str = "") -> str:
    return f"{subject} to {to}"


@task(queue_name="mail")
async def send_later(to: str) -> str:
    return to


@task(queue_name="mail", takes_context=True)
def number(context: TaskContext[Any, Any], factor: int) -> int:
    return factor * context.attempt


@task(queue_name="mail", priority=7, max_attempts=2, visibility=10, max_lease=20, timeout=5)
def limited() -> None: ...


@task(queue_name="mail", backoff=patiently)
def patient() -> None: ...


@task(queue_name="mail", backoff=lambda error, result: float("nope"))
def clumsy() -> None: ...


def plain(to: str) -> str:
    """No task, but it could be made one."""
    return to
