"""Which workers there are, as they last told: for people and probes to look at.

No move depends on it: who loses it, or never writes it, loses no task. A worker tells of itself
every few seconds; one that is gone without a word is found out by its silence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from .models import Worker
from .stores import store_for

TELL_SECONDS: Final = 9.0  # at least: workers look every 10
# A worker whose database refuses its upkeep pauses that for half a minute.
GONE_SECONDS: Final = 60.0
FORGOTTEN: Final = timedelta(hours=1)
TASKS_MAX: Final = 50  # that a worker tells of
PLAIN: Final = ("host", "pid", "threads", "started_at", "seen_at")  # columns that are as told


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningTask:
    """What a worker is doing, and since when on the database's clock."""

    queue: str
    tenant: str
    id: str
    life: str
    path: str
    attempt: int
    token: int
    since: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFacts:
    """A worker as it last told of itself; ``alive`` is False where that is too long ago."""

    name: str
    host: str
    pid: int
    threads: int
    queues: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    tasks: tuple[RunningTask, ...]
    alive: bool


def tell(using: str, worker: WorkerFacts) -> None:
    """Write down what *worker* says of itself, in the place of what it said before."""
    said = {name: getattr(worker, name) for name in PLAIN}
    said["queues"] = json.dumps(worker.queues)
    said["tasks"] = json.dumps([asdict(task) for task in worker.tasks[:TASKS_MAX]], default=str)
    if not Worker.objects.using(using).filter(name=worker.name).update(**said):
        # At its start; nobody shows them any more.
        Worker.objects.using(using).filter(seen_at__lt=worker.seen_at - FORGOTTEN).delete()
        Worker.objects.using(using).bulk_create(
            [Worker(name=worker.name, **said)], ignore_conflicts=True
        )


def leave(using: str, name: str, started_at: datetime) -> None:
    """Strike out the worker that ends; not one of the same name that has come since."""
    Worker.objects.using(using).filter(name=name, started_at=started_at).delete()


def workers(using: str) -> list[WorkerFacts]:
    """Who there is, and who has been lately, by name."""
    now = store_for(using).now()
    known = Worker.objects.using(using).filter(seen_at__gte=now - FORGOTTEN)
    return [facts(row, now) for row in known.order_by("name")]


def facts(row: Worker, now: datetime) -> WorkerFacts:
    return WorkerFacts(
        **{name: getattr(row, name) for name in ("name", *PLAIN)},
        queues=tuple(json.loads(row.queues)),
        tasks=tuple(map(running, json.loads(row.tasks))),
        alive=now - row.seen_at < timedelta(seconds=GONE_SECONDS),
    )


def running(said: dict[str, Any]) -> RunningTask:
    return RunningTask(**said | {"since": datetime.fromisoformat(said["since"])})


def serving(queue: str, everyone: Sequence[WorkerFacts]) -> list[WorkerFacts]:
    """Those of *everyone* who are alive and serve *queue*."""
    return [worker for worker in everyone if worker.alive and queue in worker.queues]
