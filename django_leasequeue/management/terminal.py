"""What the verbs share: how one is declared, tables for people, JSON for programs, who asks."""

from __future__ import annotations

import getpass
import json
import socket
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

from django_leasequeue.conf import options_for
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.overview import known_queues, served_databases
from django_leasequeue.policy import SECONDS_MAX
from django_leasequeue.queue import Queue

Argument = tuple[tuple[str, ...], dict[str, Any]]
Act = Callable[[BaseCommand, Namespace], None]


def argument(*names: str, **facts: Any) -> Argument:
    """What argparse's ``add_argument`` takes, as a value."""
    return names, facts


def add_all(parser: ArgumentParser, arguments: Sequence[Argument]) -> None:
    for names, facts in arguments:
        parser.add_argument(*names, **facts)


def at_least(
    minimum: float, number: type[int] | type[float], maximum: int = SECONDS_MAX
) -> Callable[[str], float]:
    """A parser of numbers from *minimum* on, for argparse; what isn't seconds is no larger."""

    def parsed(text: str) -> float:
        value = number(text)
        if not minimum <= value <= maximum:
            raise ArgumentTypeError(f"must be at least {minimum:g} and at most {maximum}")
        return value

    parsed.__name__ = number.__name__  # argparse quotes it: "invalid int value"
    return parsed


BAR_CHARACTERS: Final = 40
QUEUE: Final = argument("queue", metavar="QUEUE")
QUEUES: Final = argument("--queue", dest="queues", action="append", metavar="NAME")
DATABASE: Final = argument(
    "--database", metavar="ALIAS", help="Key of DATABASES; default: those of our backends."
)
# Of the verbs that tell something, to people or to programs.
TOLD: Final = (argument("--json", action="store_true", help="For programs."), DATABASE)
REMARKS: Final = (
    argument("--by", metavar="NAME", help="Who, for the record; default: your login."),
    argument("--reason", metavar="TEXT", help="Why, for the record."),
)


@dataclass(frozen=True)
class Verb:
    """One of ``manage.py leasequeue``: what it is for, what it takes, and what it does."""

    help: str
    arguments: Sequence[Argument]
    act: Act

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_all(parser, self.arguments)

    def run(self, command: BaseCommand, **options: Any) -> None:
        self.act(command, Namespace(**options))


@dataclass(frozen=True)
class Menu:
    """Verbs that share a name: the next word, told as *dest*, says which is meant."""

    help: str
    dest: str
    verbs: Mapping[str, Verb | Menu]
    epilog: str = ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.epilog = self.epilog
        names = parser.add_subparsers(dest=self.dest, required=True, metavar=self.dest.upper())
        for name, verb in self.verbs.items():
            verb.add_arguments(names.add_parser(name, help=verb.help, description=verb.help))

    def run(self, command: BaseCommand, **options: Any) -> None:
        self.verbs[options.pop(self.dest)].run(command, **options)


def verb(help: str, *arguments: Argument) -> Callable[[Act], Verb]:
    """Make a verb of a function that does it, and writes to the command's ``stdout``."""
    return lambda act: Verb(help, arguments, act)


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


def the_queue(asked: Namespace) -> Queue:
    """The queue that is asked for, which has to be one: a misspelt one would be paused in vain.

    Raises:
        CommandError: it isn't known.
    """
    name = asked.queue
    try:
        using = asked.database and databases(asked.database)[0]
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


def remarks(asked: Namespace) -> dict[str, Any]:
    """Who and why, as every act on record takes them."""
    return {"by": who(asked.by), "reason": asked.reason}


class Bar:
    """How far long work is, for who watches a terminal; elsewhere nothing is written."""

    def __init__(self, command: BaseCommand, name: str) -> None:
        self.stream, self.name = command.stderr, name
        self.watched = self.stream.isatty()
        self.shown = -1

    def show(self, share: float) -> None:
        """A bar as long as the *share* that is done, of 1."""
        percent = int(100 * share)
        if self.watched and percent != self.shown:
            bar = "█" * (BAR_CHARACTERS * percent // 100)
            line = f"\r{self.name} {bar:░<{BAR_CHARACTERS}} {percent:3} %"
            self.stream.write(line, ending="")
            self.shown = percent

    def wipe(self) -> None:
        """Make room for a line of text."""
        if self.watched:
            self.stream.write("\r\x1b[K", ending="")
            self.shown = -1


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
    right = [all(cell[:1].isdecimal() or cell in ("", "-") for cell in c[1:]) for c in columns]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        yield "  ".join(cells).rstrip()
