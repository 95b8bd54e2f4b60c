"""``manage.py leasequeue cancel QUEUE ID``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.management.terminal import add_database, add_remarks, the_queue, who

HELP: Final = "Take held tasks away, on record; a running worker's next call is refused."


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("ids", metavar="ID", nargs="+")
    parser.add_argument("--tenant", default="", metavar="NAME")
    add_remarks(parser)
    add_database(parser)


def run(
    command: BaseCommand,
    *,
    queue: str,
    ids: list[str],
    tenant: str,
    by: str | None,
    reason: str | None,
    database: str | None,
    **_: Any,
) -> None:
    """See the package."""
    target = the_queue(queue, database)
    done = target.cancel_many(ids, tenant=tenant, by=who(by), reason=reason)
    for id in sorted(done):
        command.stdout.write(f"{queue}/{id} is cancelled")
    if missing := [id for id in ids if id not in done]:
        raise CommandError(f"not held by {queue}: {', '.join(missing)}")
