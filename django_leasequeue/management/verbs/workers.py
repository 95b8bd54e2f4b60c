"""``manage.py leasequeue workers``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.management.terminal import (
    add_database,
    add_json,
    databases,
    table,
    write_json,
)
from django_leasequeue.overview.wording import span
from django_leasequeue.registry import WorkerFacts, workers
from django_leasequeue.stores import store_for

HELP: Final = "Tell which workers there are, and what each is doing since when."
HEAD: Final = ("WORKER", "HOST", "PID", "UP", "SEEN", "QUEUES", "DOING")


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    add_json(parser)
    add_database(parser)


def run(command: BaseCommand, *, json: bool, database: str | None, **_: Any) -> None:
    """See the package. Exit status 1 where no worker is alive."""
    known = {using: workers(using) for using in databases(database)}
    if json:
        write_json(command, [{"database": u, **asdict(w)} for u, all in known.items() for w in all])
    else:
        for using, everyone in known.items():
            command.stdout.write("\n".join(lines(everyone, store_for(using).now())))
    if not any(worker.alive for everyone in known.values() for worker in everyone):
        raise CommandError("no worker is alive")


def lines(everyone: Sequence[WorkerFacts], now: datetime) -> Sequence[str]:
    rows = [row for worker in everyone for row in rows_of(worker, now)]
    return list(table(HEAD, rows)) if rows else []


def rows_of(worker: WorkerFacts, now: datetime) -> Sequence[Sequence[str]]:
    """A line for the worker, and one more for each further task."""
    if not worker.alive:
        doing = ["gone"]
    else:
        doing = [
            f"{task.queue}/{task.id} {task.path} attempt {task.attempt}"
            f" for {span((now - task.since).total_seconds())}"
            for task in worker.tasks
        ] or ["idle"]
    up, seen = (now - worker.started_at).total_seconds(), (now - worker.seen_at).total_seconds()
    first = (
        *(worker.name, worker.host, str(worker.pid), span(up), span(seen) + " ago"),
        ",".join(worker.queues),
    )
    return [(*first, doing[0]), *((*("",) * len(first), more) for more in doing[1:])]
