"""``manage.py leasequeue pause QUEUE``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand

from django_leasequeue.management.terminal import add_database, add_remarks, the_queue, who

HELP: Final = "Let nothing be claimed from a queue; what runs, and enqueueing, go on."


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument("queue", metavar="QUEUE")
    add_remarks(parser)
    add_database(parser)


def run(
    command: BaseCommand,
    *,
    queue: str,
    by: str | None,
    reason: str | None,
    database: str | None,
    **_: Any,
) -> None:
    """See the package."""
    target = the_queue(queue, database)
    done = target.pause(by=who(by), reason=reason)
    leased = target.depth().leased
    said = "is paused" if done else "was paused already"
    command.stdout.write(f"{queue} {said}; {leased} of its tasks are leased still")
