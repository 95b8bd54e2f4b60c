"""``manage.py leasequeue task show ID``."""

from __future__ import annotations

import json as json_
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.management.terminal import (
    add_database,
    add_json,
    databases,
    local,
    table,
    write_json,
)
from django_leasequeue.models import Task
from django_leasequeue.overview.wording import span
from django_leasequeue.records import Attempt
from django_leasequeue.stores import store_for
from django_leasequeue.story import attempts, with_the_clock
from django_leasequeue.transitions import Kind, TaskRecord, Transition, as_of

HELP: Final = "Show a task's story."
HEAD: Final = ("WHEN", "WHAT", "ATTEMPT", "TOOK", "WORKER", "WHY")
ACTS: Final = frozenset({Kind.ENQUEUED, Kind.DUPLICATE, Kind.REDRIVEN, Kind.CANCELLED, Kind.ERASED})


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    acts = parser.add_subparsers(dest="act", required=True, metavar="show")
    show = acts.add_parser("show", help=HELP, description=HELP)
    told = "Its life (TaskResult.id), or the id of a held task."
    show.add_argument("id", metavar="ID", help=told)
    show.add_argument("--queue", metavar="NAME", help="Where an id is held by several queues.")
    show.add_argument("--tenant", metavar="NAME", help="Likewise.")
    show.add_argument("--payload", action="store_true", help="Show payload, details and result.")
    show.add_argument("--traceback", action="store_true", help="Show each error in full.")
    add_json(show)
    add_database(show)


def run(
    command: BaseCommand,
    *,
    id: str,
    queue: str | None,
    tenant: str | None,
    payload: bool,
    traceback: bool,
    json: bool,
    database: str | None,
    **_: Any,
) -> None:
    """See the package."""
    using, life = found(id, queue, tenant, databases(database))
    store = store_for(using)
    task, history, now = store.find(life), store.history([life]), store.now()
    known = with_the_clock(task, history, now)
    if json:
        write_json(command, as_json(task, known, now, payload=payload))
        return
    command.stdout.write("\n".join(facts(task, known, now)))
    command.stdout.write("\n" + "\n".join(table(HEAD, events(known, now))))
    if traceback:
        for attempt in attempts(known):
            if attempt.error:
                command.stdout.write(f"\nAttempt {attempt.attempt}:\n{full(attempt)}")
    if payload:
        for name, value in contents(task, known).items():
            command.stdout.write(f"\n{name}: {value}")


def found(
    id: str, queue: str | None, tenant: str | None, places: Sequence[str]
) -> tuple[str, UUID]:
    """Where the task of that life or id is, and its life.

    Raises:
        CommandError: there is none, or there are several.
    """
    lives: dict[UUID, tuple[str, str]] = {}
    for using in places:
        held = Task.objects.using(using).filter(task_id=id)
        held = held.filter(queue=queue) if queue is not None else held
        held = held.filter(tenant=tenant) if tenant is not None else held
        lives |= {row.life: (using, f"{row.queue}/{row.tenant}") for row in held[:10]}
        if (life := as_life(id)) and store_for(using).history([life]):
            lives[life] = (using, "")
    if not lives:
        raise CommandError(f"no task {id!r} is held, and no life of that name is on record")
    if len(lives) > 1:
        told = ", ".join(f"{place}: {life}" for life, (_, place) in lives.items())
        raise CommandError(f"several tasks have the id {id!r}, give the life of one: {told}")
    [(life, (using, _))] = lives.items()
    return using, life


def as_life(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def facts(task: TaskRecord | None, history: Sequence[Transition], now: datetime) -> Iterator[str]:
    first = history[0]
    yield f"Life      {first.life}"
    yield f"Queue     {first.queue}" + (f", tenant {first.tenant}" if first.tenant else "")
    if task:
        seen = as_of(task, now)
        yield f"Id        {task.id}"
        if task.path:
            yield f"Function  {task.path}"
        yield f"State     {seen.state} since or until {local(task.visible_at)}"
        yield f"Attempts  {task.attempt} of {task.max_attempts}"
        if task.last_error:
            yield f"Error     {task.last_error}"
    else:
        last = history[-1]
        yield f"State     left the queue: {last.kind} {local(last.at)}"


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


def full(attempt: Attempt) -> str:
    error = attempt.error or {}
    return str(error.get("traceback") or error.get("message") or "")


def contents(task: TaskRecord | None, history: Sequence[Transition]) -> dict[str, Any]:
    """Payload, details and result, as JSON text."""
    acked = [row.facts.get("result") for row in history if row.kind is Kind.ACKED]
    return {
        "payload": task.payload if task else history[0].payload,
        "details": task.details if task else None,
        "result": json_.dumps(acked[-1]) if acked else None,
    }


def as_json(
    task: TaskRecord | None, history: Sequence[Transition], now: datetime, *, payload: bool
) -> dict[str, Any]:
    first = history[0]
    return {
        "life": first.life,
        "queue": first.queue,
        "tenant": first.tenant,
        "id": task.id if task else first.id,
        "state": as_of(task, now).state if task else None,
        "ended": None if task else history[-1].kind,
        "path": task.path if task else None,
        "attempt": task.attempt if task else history[-1].attempt,
        "max_attempts": task.max_attempts if task else None,
        "attempts": [asdict(attempt) for attempt in attempts(history)],
        "log": [{"kind": row.kind, "at": row.at, "worker": row.worker} for row in history],
        **(contents(task, history) if payload else {}),
    }
