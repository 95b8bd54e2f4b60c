"""``manage.py leasequeue prune``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.conf import Options, backends, parse, queues_of, retention_of
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.models import TaskTransition
from django_leasequeue.retention import old_rows, prune
from django_leasequeue.transitions import Kind

DAY_SECONDS: Final = 86_400.0
HELP: Final = "Delete from the log what is older than OPTIONS['retention'] says."


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.add_argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="For everything that can be forgotten, in place of what OPTIONS say.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Count what would go; delete nothing."
    )
    parser.add_argument(
        "--backend", metavar="ALIAS", help="Key of TASKS; default: all lease queues there."
    )


def run(
    command: BaseCommand,
    *,
    older_than: float | None,
    dry_run: bool,
    backend: str | None,
    **_: Any,
) -> None:
    """See the package."""
    work = list(asked(backend, older_than))
    if not any(retention for _, retention, _ in work):
        raise CommandError("no OPTIONS['retention'] says what to forget; or give --older-than DAYS")
    for using, retention, queues in work:
        if dry_run:
            rows = old_rows(using, retention, queues=queues)
            command.stdout.writelines(table(using, rows, retention))
        else:
            count = prune(using, retention, queues=queues)
            command.stdout.write(f"{using}: {count} rows pruned")


def table(using: str, rows: Mapping[Kind, int], retention: Mapping[Kind, float]) -> Iterator[str]:
    for kind, count in sorted(rows.items()):
        days = f"{retention[kind] / DAY_SECONDS:g}"
        yield f"{using}: {count:>12} rows by {kind} older than {days} days\n"


def asked(
    backend: str | None, older_than: float | None
) -> Iterator[tuple[str, Mapping[Kind, float], Sequence[str]]]:
    """Database, retention and queues of the backends that are meant.

    Raises:
        CommandError: no such backend, or a number of days that can't be meant.
    """
    ours = {alias: config for alias, config in backends() if backend in (None, alias)}
    if not ours:
        raise CommandError(f"TASKS[{backend!r}] is no lease queue" if backend else "no lease queue")
    for alias, config in ours.items():
        options = parse(alias, config)
        served = queues_of(alias, config) or unnamed_queues(options.using)
        yield options.using, meant(options, older_than), served


def unnamed_queues(using: str) -> Sequence[str]:
    """The queues in the log that no backend names: those of one that takes any name."""
    named = {name for alias, config in backends() for name in queues_of(alias, config)}
    log = TaskTransition.objects.using(using).exclude(queue__in=named)
    return sorted(log.order_by().values_list("queue", flat=True).distinct())


def meant(options: Options, older_than: float | None) -> Mapping[Kind, float]:
    if older_than is None:
        return options.retention
    try:
        return retention_of(older_than * DAY_SECONDS)
    except InvalidTaskError as error:
        raise CommandError(f"--older-than: {error}") from error
