"""``manage.py leasequeue resume QUEUE``."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.base import BaseCommand

from django_leasequeue.management.terminal import the_queue, who

from .pause import add_arguments

__all__ = ["HELP", "add_arguments", "run"]

HELP: Final = "Let tasks be claimed again from a paused queue."


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
    done = target.resume(by=who(by), reason=reason)
    visible = target.depth().visible
    said = "is resumed" if done else "wasn't paused"
    command.stdout.write(f"{queue} {said}; {visible} of its tasks are visible")
