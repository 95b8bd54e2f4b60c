"""``manage.py leasequeue verify``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand

from django_leasequeue.audit import verify

from . import auditing

HELP: Final = (
    "Compare the queue's table with what the log folds into, and look for what is wrong in the log "
    "itself, beside live workers. Changes nothing; exits with 1 where there is drift."
)


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    auditing.add_arguments(parser)


def run(command: BaseCommand, *, database: str | None, as_json: bool, **_: Any) -> None:
    """See the package."""
    auditing.walk(command, verify, database=database, as_json=as_json)
