"""What is left of a run: the log, the tables, the traces of effects, the clients' records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.db import connection

from django_leasequeue.models import Batch, Pause, Tally, Task, TaskTransition
from django_leasequeue.stores import store_for
from django_leasequeue.transitions import TaskRecord, Transition

ATOMIC_TABLE: Final = "chaos_effect"
ORDER_TABLE: Final = "chaos_order"
# Files in the folder CHAOS_FOLDER
TRACES: Final = "traces"
RECORDS: Final = "records"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a delivery did: of which life, under which token."""

    life: UUID
    token: int


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a client was told; see load.py."""

    said: str
    mark: str
    queue: str
    life: UUID | None


@dataclass(frozen=True)
class Paused:
    """For how long a queue was paused; *until* is None where it still is."""

    queue: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class Batched:
    """What a batch says of itself. *by* is of this batch alone."""

    by: str
    verb: str
    queue: str
    total: int
    moved: int
    skipped: int
    done: bool
    rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is left of a run.

    Args:
        log: in log order.
        held: the projection.
        tallies: what was pruned from the log, by (queue, kind).
        outside: effects in the world outside.
        committed: effects in the queue's own database, by atomic tasks.
        told: what the clients wrote down.
        orders: marks of the site's own rows, each committed with a task.
        ended_at: when all was calm, on the database's clock; None: the run isn't over.
    """

    log: Sequence[Transition]
    held: Mapping[UUID, TaskRecord]
    tallies: Mapping[tuple[str, str], int] = field(default_factory=dict)
    outside: Sequence[Effect] = ()
    committed: Sequence[Effect] = ()
    told: Sequence[Told] = ()
    orders: frozenset[str] = frozenset()
    pauses: Sequence[Paused] = ()
    batches: Sequence[Batched] = ()
    ended_at: datetime | None = None


def gathered(folder: Path) -> Evidence:
    """The evidence in the database and in *folder*, when nobody is at work any more."""
    return Evidence(
        log=[row.transition for row in TaskTransition.objects.order_by("id").iterator()],
        held={row.life: row.record for row in Task.objects.all()},
        tallies={(row.queue, row.kind): row.count for row in Tally.objects.all()},
        outside=[effect(*line.split()) for line in lines_of(folder / TRACES)],
        committed=[effect(*row) for row in rows_of(f"SELECT life, token FROM {ATOMIC_TABLE}")],  # noqa: S608
        told=[told(line) for line in lines_of(folder / RECORDS)],
        orders=frozenset(mark for (mark,) in rows_of(f"SELECT mark FROM {ORDER_TABLE}")),  # noqa: S608
        pauses=[
            Paused(queue=row.queue, since=row.paused_at, until=row.resumed_at)
            for row in Pause.objects.all()
        ],
        batches=[batched(row) for row in Batch.objects.all()],
        ended_at=store_for("default").now(),
    )


def batched(row: Batch) -> Batched:
    names = [field.name for field in fields(Batched) if field.name not in ("queue", "done")]
    told = {name: getattr(row, name) for name in names}
    return Batched(**told, queue=row.queues, done=row.done_at is not None)


def effect(life: str | UUID, token: str | int) -> Effect:
    return Effect(life=UUID(str(life)), token=int(token))


def told(line: str) -> Told:
    facts = json.loads(line)
    life = facts.pop("life")
    return Told(**facts, life=UUID(life) if life else None)


def lines_of(path: Path) -> Iterator[str]:
    return iter(path.read_text().splitlines() if path.exists() else [])


def rows_of(sql: str) -> Sequence[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
