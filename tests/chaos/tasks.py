"""What the workers do. Each effect leaves a trace: outside in a file, atomically in a table.

The file stands for the world outside: nothing that happens to the database happens to it, and
what a killed process wrote stays written.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.db import connection

from django_leasequeue import effects
from django_leasequeue.effects import REPEAT, SKIP, Uncertain
from django_leasequeue.tasks import task
from django_leasequeue.worker import current_lease
from tests.chaos.evidence import ATOMIC_TABLE, TRACES


class Refused(Exception):
    """The world outside says no."""


class Fatal(Exception):
    """And always will."""


def backoff(error: BaseException, _: Any) -> float | None:
    return None if isinstance(error, Fatal) else 0.2


task = partial(task, queue_name="work", backoff=backoff)  # type: ignore[assignment]


def leave_trace() -> None:
    """One line, in one write: (life, token)."""
    lease = current_lease().lease
    path = Path(os.environ["CHAOS_FOLDER"]) / TRACES
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{lease.life} {lease.token}\n".encode())
    finally:
        os.close(file)


def trouble(plan: dict[str, Any]) -> None:
    """What the plan has for this attempt: it takes its time, dies or fails."""
    attempt = current_lease().attempt
    if attempt <= plan.get("dies", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if plan.get("fatal"):
        raise Fatal
    if attempt <= plan.get("fails", 0):
        raise Refused


@task()
def plain(mark: str, plan: dict[str, Any]) -> None:
    time.sleep(plan.get("takes", 0))
    leave_trace()
    if plan.get("details"):
        current_lease().heartbeat({"mark": mark})
    trouble(plan)


@task()
async def later(mark: str, plan: dict[str, Any]) -> None:
    await asyncio.sleep(plan.get("takes", 0))
    leave_trace()
    trouble(plan)


@task(atomic=True)
def atomically(mark: str, plan: dict[str, Any]) -> None:
    lease = current_lease().lease
    with connection.cursor() as cursor:
        row: list[Any] = [lease.life, lease.token]
        cursor.execute(f"INSERT INTO {ATOMIC_TABLE} (life, token) VALUES (%s, %s)", row)  # noqa: S608
    time.sleep(plan.get("takes", 0))
    trouble(plan)


def charge(mark: str, plan: dict[str, Any], uncertain: Uncertain) -> None:
    if plan.get("dies") == 1:
        trouble(plan)  # before the first effect, not after it
    effects.once("charge", leave_trace, uncertain=uncertain)
    time.sleep(plan.get("takes", 0))
    trouble(plan)


@task()
def once(mark: str, plan: dict[str, Any]) -> None:
    charge(mark, plan, Uncertain.RAISE)


@task()
def once_or_never(mark: str, plan: dict[str, Any]) -> None:
    charge(mark, plan, SKIP)


@task()
def once_or_more(mark: str, plan: dict[str, Any]) -> None:
    charge(mark, plan, REPEAT)


@task()
async def once_later(mark: str, plan: dict[str, Any]) -> None:
    async def act() -> None:
        await asyncio.sleep(plan.get("takes", 0))
        leave_trace()

    await effects.aonce("charge", act)
    trouble(plan)


ALL: Final = (plain, later, atomically, once, once_or_never, once_or_more, once_later)
