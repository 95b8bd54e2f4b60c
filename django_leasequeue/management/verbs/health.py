"""``manage.py leasequeue health``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.health import OLDEST_SECONDS, health
from django_leasequeue.management.terminal import add_database, add_json, databases, write_json

HELP: Final = "For probes: is the database there, is nothing too old, is a worker alive?"


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument("--queue", dest="queues", action="append", metavar="NAME")
    parser.add_argument(
        "--oldest",
        type=float,
        default=OLDEST_SECONDS,
        metavar="SECONDS",
        help="That a visible task may have waited; default: %(default)g. Paused queues may.",
    )
    parser.add_argument(
        "--no-workers",
        action="store_false",
        dest="workers",
        help="Don't mind whether one is alive.",
    )
    parser.add_argument("--worker", metavar="NAME", help="This one has to be alive, no other.")
    add_json(parser)
    add_database(parser)


def run(
    command: BaseCommand,
    *,
    queues: list[str] | None,
    oldest: float,
    workers: bool,
    worker: str | None,
    json: bool,
    database: str | None,
    **_: Any,
) -> None:
    """See the package. Exit status 1 where something is wrong."""
    found = {
        using: health(using, queues=queues, oldest=oldest, workers=workers, worker=worker)
        for using in databases(database)
    }
    if json:
        told = {using: {"healthy": each.healthy, **asdict(each)} for using, each in found.items()}
        write_json(command, told)
    else:
        for using, each in found.items():
            if each.healthy:
                command.stdout.write(f"{using}: healthy ({', '.join(each.looked_at) or 'empty'})")
    if problems := [problem for each in found.values() for problem in each.problems]:
        raise CommandError("; ".join(problems))
