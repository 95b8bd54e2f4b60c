"""``manage.py leasequeue status``."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.management.terminal import (
    add_database,
    add_json,
    databases,
    local,
    table,
    write_json,
)
from django_leasequeue.overview import Overview, QueueView, Verdict, overview
from django_leasequeue.overview.rates import WHAT
from django_leasequeue.overview.verdicts import RECENT_SECONDS
from django_leasequeue.overview.wording import number, span

HELP: Final = "Tell how the queues are doing, and why."
HEAD: Final = (
    *("QUEUE", "VERDICT", "VISIBLE", "SCHEDULED", "LEASED", "DEAD", "OLDEST"),
    *("IN/MIN", "DONE/MIN", "FAILED/MIN", "LAPSED/MIN", "WORKERS"),
)
CLEAR: Final = "\x1b[H\x1b[2J"
TROUBLE: Final = {Verdict.STUCK: 3, Verdict.BEHIND: 2}


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument("--queue", dest="queues", action="append", metavar="NAME")
    parser.add_argument("--tenants", action="store_true", help="A line for each tenant, too.")
    parser.add_argument("--watch", action="store_true", help="Again and again, until Ctrl-C.")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="Of --watch; default: 2."
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="Exit status 3 where a queue is stuck, 2 where one is falling behind.",
    )
    add_json(parser)
    add_database(parser)


def run(
    command: BaseCommand,
    *,
    queues: list[str] | None,
    watch: bool,
    interval: float,
    check: bool,
    database: str | None,
    **options: Any,
) -> None:
    """See the package."""
    places = databases(database)
    with suppress(KeyboardInterrupt):
        while True:
            views = [overview(using, only=queues) for using in places]
            show(command, views, watch=watch, **options)
            if not watch:
                break
            time.sleep(max(interval, 0.1))
    if check:
        complain(views)


def show(
    command: BaseCommand,
    views: Sequence[Overview],
    *,
    json: bool,
    tenants: bool,
    watch: bool,
    **_: Any,
) -> None:
    if json:
        told = [as_json(view, queue) for view in views for queue in view.queues]
        write_json(command, told, indent=None if watch else 2)
        return
    if watch:
        command.stdout.write(CLEAR, ending="")
        command.stdout.write(f"{local(views[0].now)}  every few seconds; Ctrl-C ends it\n")
    for view in views:
        command.stdout.write("\n".join(lines(command, view, tenants=tenants)))


def lines(command: BaseCommand, view: Overview, *, tenants: bool) -> Iterator[str]:
    rows: list[tuple[Verdict, Sequence[str]]] = []
    for queue in view.queues:
        rows.append((queue.verdict, row_of(queue)))
        named = [counts for counts in queue.held.tenants if counts.tenant and tenants]
        rows += [(Verdict.HEALTHY, tenant_row(view, queue, counts)) for counts in named]
    head, *body = table(HEAD, [row for _, row in rows])
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
    lately = queue.rates[0]
    about = "" if lately.exact else "~"
    a_minute = [lately.per_minute(what, seconds=RECENT_SECONDS) for what in WHAT]
    return (
        *(queue.name, str(queue.verdict)),
        *counts_of(queue, queue.total),
        "-" if queue.oldest is None else span(queue.oldest),
        *(number(rate) + about for rate in a_minute),
        str(len(queue.workers)),
    )


def tenant_row(view: Overview, queue: QueueView, counts: Any) -> Sequence[str]:
    oldest = span((view.now - counts.since).total_seconds()) if counts.since else "-"
    return (f"  {counts.tenant}", "", *counts_of(queue, counts), oldest, *("",) * 5)


def counts_of(queue: QueueView, counts: Any) -> Iterator[str]:
    for name in ("visible", "scheduled", "leased", "dead"):
        yield f"{getattr(counts, name)}{'+' if name in queue.held.cut else ''}"


def as_json(view: Overview, queue: QueueView) -> dict[str, Any]:
    lately = queue.rates[0]
    return {
        "database": view.using,
        "at": view.now,
        "queue": queue.name,
        "verdict": queue.verdict,
        "reason": queue.reason,
        "counts_exact": not queue.held.cut,
        **{key: value for key, value in asdict(queue.total).items() if key not in ("tenant",)},
        "oldest_visible_age": queue.oldest,
        "rates_exact": lately.exact,
        **{f"{what}_per_minute": lately.per_minute(what, seconds=RECENT_SECONDS) for what in WHAT},
        "workers": [worker.name for worker in queue.workers],
        "paused": asdict(queue.paused) if queue.paused else None,
        "tenants": [asdict(counts) for counts in queue.held.tenants if counts.tenant],
    }


def complain(views: Sequence[Overview]) -> None:
    """End with the exit status of the worst.

    Raises:
        CommandError: a queue is stuck, or falling behind.
    """
    found = [queue for view in views for queue in view.queues if queue.verdict in TROUBLE]
    if found:
        worst = max(TROUBLE[queue.verdict] for queue in found)
        named = ", ".join(f"{queue.name} is {queue.verdict}" for queue in found)
        raise CommandError(named, returncode=worst)
