"""What the verbs share: tables for people, JSON for programs, and who is at the keyboard."""

from __future__ import annotations

import getpass
import json
import socket
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

from django_leasequeue.conf import options_for
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.overview import known_queues, served_databases
from django_leasequeue.queue import Queue

NUMBERS: Final = frozenset("0123456789")


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="For programs.")


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--database", metavar="ALIAS", help="Key of DATABASES; default: those of our backends."
    )


def add_remarks(parser: ArgumentParser) -> None:
    parser.add_argument("--by", metavar="NAME", help="Who, for the record; default: your login.")
    parser.add_argument("--reason", metavar="TEXT", help="Why, for the record.")


def databases(asked: str | None) -> list[str]:
    """The databases to look at.

    Raises:
        CommandError: there is none, or none of that name.
    """
    if asked is not None and asked not in connections.settings:
        raise CommandError(f"--database {asked}: DATABASES has {', '.join(connections.settings)}")
    found = [asked] if asked else served_databases()
    if not found:
        raise CommandError("TASKS has no lease queue; or say which --database")
    return found


def the_queue(name: str, asked: str | None) -> Queue:
    """The queue *name*, which has to be one: a misspelt one would be paused in vain.

    Raises:
        CommandError: it isn't known.
    """
    try:
        using = asked and databases(asked)[0]
        queue = Queue(name, using=using or options_for(name).using)
    except (InvalidTaskError, ImproperlyConfigured) as error:
        raise CommandError(str(error).replace("give using=", "say --database")) from error
    names = known_queues(queue.using)
    if name not in names:
        there = ", ".join(sorted(names)) or "none"
        raise CommandError(f"no queue {name!r} in the database {queue.using!r}; of those: {there}")
    return queue


def who(asked: str | None) -> str:
    """For the record: who was named, else who is logged in."""
    if asked:
        return asked
    try:
        login = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        login = "somebody"
    return f"{login}@{socket.gethostname()}"[:200]


def write_json(command: BaseCommand, value: Any, *, indent: int | None = 2) -> None:
    command.stdout.write(json.dumps(value, indent=indent, default=text_of))


def text_of(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def local(moment: datetime) -> str:
    """An instant in the site's zone, to the second."""
    zoned = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{zoned:%Y-%m-%d %H:%M:%S}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of columns, numbers to the right; the last column is left as long as it is."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(cell[:1] in NUMBERS or cell in ("", "-") for cell in c[1:]) for c in columns]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        yield "  ".join(cells).rstrip()
