"""``manage.py leasequeue advance-tokens``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.management.terminal import add_database, databases
from django_leasequeue.stores import tokens

NUMBER_MAX: Final = 2**63 - 1
HELP: Final = (
    "Let the sequence of fencing tokens go on behind every token in the queue's tables, so that "
    "none is given out a second time. After a dump was restored, or a replica that lagged took "
    "over, say --by: tokens were given out that these tables never saw."
)


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument(
        "--by", type=int, default=0, metavar="N", help="Leave out that many numbers besides."
    )
    add_database(parser)


def run(command: BaseCommand, *, by: int, database: str | None, **_: Any) -> None:
    """See the package."""
    if by < 0:
        raise CommandError("--by: tokens never go back")
    for using in databases(database):
        to = max(tokens.given_out(using), tokens.standing(using)) + by
        if to > NUMBER_MAX:
            raise CommandError(f"--by: no token is above {NUMBER_MAX}")
        tokens.advance(using, to)
        command.stdout.write(f"{using}: the next token is above {tokens.standing(using)}")
