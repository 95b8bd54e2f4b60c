"""``manage.py leasequeue rebuild``."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from typing import Any, Final

from django.core.management.base import BaseCommand

from django_leasequeue.audit import rebuild

from . import auditing

HELP: Final = (
    "Make the queue's table what the log folds into, wherever it isn't, beside live workers. "
    "Exits with 1 where drift is left: what is wrong in the log itself stays."
)


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    auditing.add_arguments(parser)
    parser.add_argument(
        "--delete-unlogged",
        action="store_true",
        help="Delete also tasks that the log knows nothing of. They may be all that is left of "
        "what was enqueued: without this they are named and kept.",
    )


def run(
    command: BaseCommand, *, database: str | None, as_json: bool, delete_unlogged: bool, **_: Any
) -> None:
    """See the package."""
    steps_of = partial(rebuild, unlogged=delete_unlogged)
    auditing.walk(command, steps_of, database=database, as_json=as_json)
