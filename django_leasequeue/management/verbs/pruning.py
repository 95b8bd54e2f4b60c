"""``manage.py leasequeue prune``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import pluralize

from django_leasequeue.conf import backends, parse, queues_of, retention_of
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.models import TaskTransition
from django_leasequeue.retention import old_rows, prune as forget
from django_leasequeue.transitions import Kind

from ..terminal import Bar, argument, verb

DAY_SECONDS: Final = 86_400.0


@verb(
    "Delete from the log what is older than OPTIONS['retention'] says.",
    argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="For everything that can be forgotten, in place of what OPTIONS say.",
    ),
    argument("--dry-run", action="store_true", help="Count what would go; delete nothing."),
    argument("--backend", metavar="ALIAS", help="Key of TASKS; default: all lease queues there."),
)
def prune(command: BaseCommand, asked: Namespace) -> None:
    work = list(meant(asked.backend, asked.older_than))
    if not any(retention for _, retention, _ in work):
        raise CommandError("no OPTIONS['retention'] says what to forget; or give --older-than DAYS")
    for using, retention, queues in work:
        if not asked.dry_run:
            bar = Bar(command, using)
            count = forget(using, retention, queues=queues, watch=bar.show)
            bar.wipe()
            command.stdout.write(f"{using}: {count} row{pluralize(count)} pruned")
            continue
        for kind, count in sorted(old_rows(using, retention, queues=queues).items()):
            days = f"{retention[kind] / DAY_SECONDS:g}"
            command.stdout.write(f"{using}: {count:>12} rows by {kind} older than {days} days")


def meant(
    backend: str | None, older_than: float | None
) -> Iterator[tuple[str, Mapping[Kind, float], Sequence[str]]]:
    """Database, retention and queues of the backends that are meant.

    Raises:
        CommandError: no such backend, or a number of days that can't be meant.
    """
    ours = {alias: config for alias, config in backends() if backend in (None, alias)}
    if not ours:
        raise CommandError(f"TASKS[{backend!r}] is no lease queue" if backend else "no lease queue")
    try:
        everything = None if older_than is None else retention_of(older_than * DAY_SECONDS)
    except InvalidTaskError as error:
        raise CommandError(f"--older-than: {error}") from error
    for alias, config in ours.items():
        options = parse(alias, config)
        served = queues_of(alias, config) or unnamed_queues(options.using)
        yield options.using, options.retention if everything is None else everything, served


def unnamed_queues(using: str) -> Sequence[str]:
    """The queues in the log that no backend names: those of one that takes any name."""
    named = {name for alias, config in backends() for name in queues_of(alias, config)}
    log = TaskTransition.objects.using(using).exclude(queue__in=named)
    return sorted(log.order_by().values_list("queue", flat=True).distinct())
