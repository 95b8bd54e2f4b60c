"""``manage.py leasequeue erase LIFE``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.conf import backends, parse
from django_leasequeue.models import TaskTransition
from django_leasequeue.queue import Queue

HELP: Final = "Blank payload, details, results and errors of one task, in the log too, on record."


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument("life", type=UUID, help="What TaskResult.id and the admin say.")
    parser.add_argument("--by", metavar="NAME", help="Who erases, for the record.")
    parser.add_argument("--reason", metavar="TEXT", help="Why, for the record.")


def run(command: BaseCommand, *, life: UUID, by: str | None, reason: str | None, **_: Any) -> None:
    """See the package."""
    databases = {parse(alias, config).using for alias, config in backends()}
    for using in sorted(databases):
        log = TaskTransition.objects.using(using).filter(life=life)
        for name in log.values_list("queue", flat=True)[:1]:
            if Queue(name, using=using).erase(life, by=by, reason=reason):
                command.stdout.write(f"{using}: {life} of queue {name} is erased")
                return
    raise CommandError(f"no database of ours has {life} on record")
