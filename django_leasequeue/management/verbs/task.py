"""``manage.py leasequeue task show ID``: a task's story."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.models import Task
from django_leasequeue.overview.wording import span
from django_leasequeue.stores import store_for
from django_leasequeue.story import attempts, with_the_clock
from django_leasequeue.transitions import Kind, TaskRecord, Transition, as_of
from django_leasequeue.validation import as_life

from ..terminal import TOLD, argument, databases, local, table, verb, write_json

HEAD: Final = ("WHEN", "WHAT", "ATTEMPT", "TOOK", "WORKER", "WHY")
ACTS: Final = frozenset({Kind.ENQUEUED, Kind.DUPLICATE, Kind.REDRIVEN, Kind.CANCELLED, Kind.ERASED})


@verb(
    "Show a task's story.",
    argument("show", choices=["show"], metavar="show"),
    argument("id", metavar="ID", help="Its life (TaskResult.id), or the id of a held task."),
    argument("--queue", metavar="NAME", help="Where an id is held by several queues."),
    argument("--tenant", metavar="NAME", help="Likewise."),
    argument("--payload", action="store_true", help="Show payload, details and result."),
    argument("--traceback", action="store_true", help="Show each error in full."),
    *TOLD,
)
def task(command: BaseCommand, asked: Namespace) -> None:
    tell(command, *found(asked), asked)


def tell(command: BaseCommand, using: str, life: UUID, asked: Namespace) -> None:
    """The story of *life*; as JSON, with payload or tracebacks where that is asked for."""
    store = store_for(using)
    held, now = store.find(life), store.now()
    history = with_the_clock(held, store.history([life]), now)
    if asked.json:
        told = as_json(held, history, now) | (contents(held, history) if asked.payload else {})
        write_json(command, told)
        return
    command.stdout.write("\n".join(facts(held, history, now)))
    command.stdout.write("\n" + "\n".join(table(HEAD, events(history, now))))
    for attempt in attempts(history) if asked.traceback else ():
        if error := attempt.error:
            full = error.get("traceback") or error.get("message") or ""
            command.stdout.write(f"\nAttempt {attempt.attempt}:\n{full}")
    for name, value in contents(held, history).items() if asked.payload else ():
        command.stdout.write(f"\n{name}: {value}")


def found(asked: Namespace) -> tuple[str, UUID]:
    """Where the task of that life or id is, and its life.

    Raises:
        CommandError: there is none, or there are several.
    """
    wanted = {"task_id": asked.id, "queue": asked.queue, "tenant": asked.tenant}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    lives: dict[UUID, tuple[str, str]] = {}
    for using in databases(asked.database):
        held = Task.objects.using(using).filter(**wanted)
        lives |= {row.life: (using, f"{row.queue}/{row.tenant}") for row in held[:10]}
        if (life := as_life(asked.id)) and store_for(using).history([life]):
            lives[life] = (using, "")
    if not lives:
        raise CommandError(f"no task {asked.id!r} is held, and no life of that name is on record")
    if len(lives) > 1:
        told = ", ".join(f"{place}: {life}" for life, (_, place) in lives.items())
        raise CommandError(f"several tasks have the id {asked.id!r}, give the life of one: {told}")
    [(life, (using, _))] = lives.items()
    return using, life


def facts(held: TaskRecord | None, history: Sequence[Transition], now: datetime) -> Iterator[str]:
    first, last = history[0], history[-1]
    yield f"Life      {first.life}"
    yield f"Queue     {first.queue}" + (f", tenant {first.tenant}" if first.tenant else "")
    if not held:
        yield f"State     left the queue: {last.kind} {local(last.at)}"
        return
    yield f"Id        {held.id}"
    if held.path:
        yield f"Function  {held.path}"
    yield f"State     {as_of(held, now).state} since or until {local(held.visible_at)}"
    yield f"Attempts  {held.attempt} of {held.max_attempts}"
    if held.last_error:
        yield f"Error     {held.last_error}"


def events(history: Sequence[Transition], now: datetime) -> list[Sequence[str]]:
    """What people did, and each attempt, in order."""
    rows = [
        (act.at, (local(act.at), str(act.kind), "", "", "", remark(act)))
        for act in history
        if act.kind in ACTS
    ]
    for attempt in attempts(history):
        took = span(((attempt.ended_at or now) - attempt.started_at).total_seconds())
        error = str((attempt.error or {}).get("summary", ""))
        begun = (local(attempt.started_at), attempt.outcome, str(attempt.attempt))
        rows.append((attempt.started_at, (*begun, took, attempt.worker, error)))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def remark(act: Transition) -> str:
    """Who did it, and why."""
    by = f"by {act.facts['by']}" if act.facts.get("by") else ""
    return ": ".join(filter(None, [by, act.facts.get("reason")]))


def contents(held: TaskRecord | None, history: Sequence[Transition]) -> dict[str, Any]:
    """Payload, details and result, as JSON text."""
    acked = [row.facts.get("result") for row in history if row.kind is Kind.ACKED]
    return {
        "payload": held.payload if held else history[0].payload,
        "details": held.details if held else None,
        "result": json.dumps(acked[-1]) if acked else None,
    }


def as_json(
    held: TaskRecord | None, history: Sequence[Transition], now: datetime
) -> dict[str, Any]:
    first, last = history[0], history[-1]
    return {
        "life": first.life,
        "queue": first.queue,
        "tenant": first.tenant,
        "id": held.id if held else first.id,
        "state": as_of(held, now).state if held else None,
        "ended": None if held else last.kind,
        "path": held.path if held else None,
        "attempt": held.attempt if held else last.attempt,
        "max_attempts": held.max_attempts if held else None,
        "attempts": [asdict(attempt) for attempt in attempts(history)],
        "log": [{"kind": row.kind, "at": row.at, "worker": row.worker} for row in history],
    }
