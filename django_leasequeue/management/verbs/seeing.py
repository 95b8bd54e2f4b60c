"""``manage.py leasequeue status|workers|health``: how the queues are doing, and who is there."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.health import OLDEST_SECONDS, healths, problems_of
from django_leasequeue.overview import Overview, QueueView, Verdict, overview
from django_leasequeue.overview.counting import STANDINGS, Counts
from django_leasequeue.overview.rates import WHAT
from django_leasequeue.overview.verdicts import RECENT_SECONDS
from django_leasequeue.overview.wording import number, span
from django_leasequeue.registry import WorkerFacts, workers as known_workers
from django_leasequeue.stores import store_for

from ..terminal import QUEUES, TOLD, argument, at_least, databases, local, table, verb, write_json

STATUS: Final = (
    *("QUEUE", "VERDICT", "VISIBLE", "SCHEDULED", "LEASED", "DEAD", "OLDEST"),
    *("IN/MIN", "DONE/MIN", "FAILED/MIN", "LAPSED/MIN", "WORKERS"),
)
WORKERS: Final = ("WORKER", "HOST", "PID", "UP", "SEEN", "QUEUES", "DOING")
CLEAR: Final = "\x1b[H\x1b[2J"
TROUBLE: Final = {Verdict.STUCK: 3, Verdict.BEHIND: 2}


@verb(
    "Tell how the queues are doing, and why.",
    QUEUES,
    argument("--tenants", action="store_true", help="A line for each tenant, too."),
    argument("--watch", action="store_true", help="Again and again, until Ctrl-C."),
    argument(
        "--interval",
        type=at_least(0, float),
        default=2.0,
        metavar="SECONDS",
        help="Of --watch; default: 2.",
    ),
    argument(
        "--check",
        action="store_true",
        help="Exit status 3 where a queue is stuck, 2 where one is falling behind.",
    ),
    *TOLD,
)
def status(command: BaseCommand, asked: Namespace) -> None:
    places = databases(asked.database)
    with suppress(KeyboardInterrupt):
        while True:
            views = [overview(using, only=asked.queues) for using in places]
            show(command, views, asked)
            if not asked.watch:
                break
            time.sleep(max(asked.interval, 0.1))
    if asked.check:
        complain([queue for view in views for queue in view.queues if queue.verdict in TROUBLE])


def show(command: BaseCommand, views: Sequence[Overview], asked: Namespace) -> None:
    if asked.json:
        told = [as_json(view, queue) for view in views for queue in view.queues]
        write_json(command, told, indent=None if asked.watch else 2)
        return
    if asked.watch:
        command.stdout.write(CLEAR, ending="")
        command.stdout.write(f"{local(views[0].now)}  every few seconds; Ctrl-C ends it\n")
    for view in views:
        if len(views) > 1:
            command.stdout.write(f"Database {view.using}")
        command.stdout.write("\n".join(lines(command, view, tenants=asked.tenants)))


def lines(command: BaseCommand, view: Overview, *, tenants: bool) -> Iterator[str]:
    rows: list[tuple[Verdict, Sequence[str]]] = []
    for queue in view.queues:
        rows.append((queue.verdict, row_of(queue)))
        named = [counts for counts in queue.held.tenants if counts.tenant and tenants]
        rows += [(Verdict.HEALTHY, tenant_row(view.now, queue, counts)) for counts in named]
    head, *body = table(STATUS, [row for _, row in rows])
    yield head
    for (found, _), line in zip(rows, body, strict=True):
        yield coloured(command, found, line)
    troubled = [queue for queue in view.queues if queue.verdict is not Verdict.HEALTHY]
    if troubled:
        yield ""
    for queue in troubled:
        yield coloured(command, queue.verdict, f"{queue.name} is {queue.verdict}: {queue.reason}")


def coloured(command: BaseCommand, found: Verdict, line: str) -> str:
    if found is Verdict.HEALTHY:
        return line
    return (command.style.ERROR if found is Verdict.STUCK else command.style.WARNING)(line)


def row_of(queue: QueueView) -> Sequence[str]:
    about = "" if queue.rates[0].exact else "~"
    return (
        *(queue.name, str(queue.verdict)),
        *map(queue.held.told, STANDINGS),
        "-" if queue.oldest is None else span(queue.oldest),
        *(number(rate) + about for rate in per_minute(queue).values()),
        str(len(queue.workers)),
    )


def tenant_row(now: datetime, queue: QueueView, counts: Counts) -> Sequence[str]:
    oldest = ago(counts.since, now) if counts.since else "-"
    told = [queue.held.told(name, counts) for name in STANDINGS]
    return (f"  {counts.tenant}", "", *told, oldest, *("",) * 5)


def per_minute(queue: QueueView) -> dict[str, float]:
    return {what: queue.rates[0].per_minute(what, seconds=RECENT_SECONDS) for what in WHAT}


def as_json(view: Overview, queue: QueueView) -> dict[str, Any]:
    counts = asdict(queue.total)
    del counts["tenant"]
    return {
        "database": view.using,
        "at": view.now,
        "queue": queue.name,
        "verdict": queue.verdict,
        "reason": queue.reason,
        "counts_exact": not queue.held.cut,
        **counts,
        "oldest_visible_age": queue.oldest,
        "rates_exact": queue.rates[0].exact,
        **{f"{what}_per_minute": rate for what, rate in per_minute(queue).items()},
        "workers": [worker.name for worker in queue.workers],
        "paused": asdict(queue.paused) if queue.paused else None,
        "tenants": [asdict(counts) for counts in queue.held.tenants if counts.tenant],
    }


def complain(troubled: Sequence[QueueView]) -> None:
    """End with the exit status of the worst.

    Raises:
        CommandError: a queue is stuck, or falling behind.
    """
    if troubled:
        worst = max(TROUBLE[queue.verdict] for queue in troubled)
        named = ", ".join(f"{queue.name} is {queue.verdict}" for queue in troubled)
        raise CommandError(named, returncode=worst)


@verb("Tell which workers there are, and what each is doing since when.", *TOLD)
def workers(command: BaseCommand, asked: Namespace) -> None:
    known = {using: known_workers(using) for using in databases(asked.database)}
    if asked.json:
        told = [{"database": using, **asdict(each)} for using in known for each in known[using]]
        write_json(command, told)
    else:
        for using, everyone in known.items():
            now = store_for(using).now()
            rows = [row for worker in everyone for row in rows_of(worker, now)]
            if rows and len(known) > 1:
                command.stdout.write(f"Database {using}")
            command.stdout.write("\n".join(table(WORKERS, rows) if rows else ()))
    if not any(worker.alive for everyone in known.values() for worker in everyone):
        raise CommandError("no worker is alive")


def rows_of(worker: WorkerFacts, now: datetime) -> Iterable[Sequence[str]]:
    """A line for the worker, and one more for each further task."""
    doing = [
        f"{task.queue}/{task.id} {task.path} attempt {task.attempt} for {ago(task.since, now)}"
        for task in worker.tasks
    ]
    first, *others = (doing or ["idle"]) if worker.alive else ["gone"]
    times = ago(worker.started_at, now), f"{ago(worker.seen_at, now)} ago"
    yield worker.name, worker.host, str(worker.pid), *times, ",".join(worker.queues), first
    for other in others:
        yield *[""] * (len(WORKERS) - 1), other


def ago(moment: datetime, now: datetime) -> str:
    return span((now - moment).total_seconds())


@verb(
    "For probes: is the database there, is nothing too old, is a worker alive?",
    QUEUES,
    argument(
        "--oldest",
        type=at_least(0, float),
        default=OLDEST_SECONDS,
        metavar="SECONDS",
        help="That a visible task may have waited; default: %(default)g. Paused queues may.",
    ),
    argument(
        "--no-workers",
        action="store_false",
        dest="workers",
        help="Don't mind whether one is alive.",
    ),
    argument("--worker", metavar="NAME", help="This one has to be alive, no other."),
    *TOLD,
)
def health(command: BaseCommand, asked: Namespace) -> None:
    bounds = {name: getattr(asked, name) for name in ("queues", "oldest", "workers", "worker")}
    found = healths(databases(asked.database), **bounds)
    if asked.json:
        told = {using: {"healthy": each.healthy, **asdict(each)} for using, each in found.items()}
        write_json(command, told)
    else:
        for using, each in found.items():
            if each.healthy:
                command.stdout.write(f"{using}: healthy ({', '.join(each.looked_at) or 'empty'})")
    if problems := problems_of(found):
        raise CommandError("; ".join(problems))
