"""What an operator does to a queue from a shell; one verb each."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.conf import Options, backends, parse, queues_of, retention_of
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.models import TaskTransition
from django_leasequeue.queue import Queue
from django_leasequeue.retention import old_rows, prune
from django_leasequeue.transitions import Kind

DAY_SECONDS: Final = 86_400.0


class Command(BaseCommand):
    """``manage.py leasequeue VERB``."""

    help = "Looks after the queues: see the help of each verb."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See BaseCommand."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        told = "Delete from the log what is older than OPTIONS['retention'] says."
        add = verbs.add_parser("prune", help=told, description=told).add_argument
        add(
            "--older-than",
            type=float,
            metavar="DAYS",
            help="For everything that can be forgotten, in place of what OPTIONS say.",
        )
        add("--dry-run", action="store_true", help="Count what would go; delete nothing.")
        add("--backend", metavar="ALIAS", help="Key of TASKS; default: all lease queues there.")
        told = "Blank payload, details, results and errors of one task, in the log too, on record."
        add = verbs.add_parser("erase", help=told, description=told).add_argument
        add("life", type=UUID, help="What TaskResult.id and the admin say.")
        add("--by", metavar="NAME", help="Who erases, for the record.")
        add("--reason", metavar="TEXT", help="Why, for the record.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """See BaseCommand."""
        verbs: dict[str, Callable[..., None]] = {"prune": self.prune, "erase": self.erase}
        verbs[verb](**options)

    def prune(
        self, *, older_than: float | None, dry_run: bool, backend: str | None, **_: Any
    ) -> None:
        work = list(asked(backend, older_than))
        if not any(retention for _, retention, _ in work):
            raise CommandError(
                "no OPTIONS['retention'] says what to forget; or give --older-than DAYS"
            )
        for using, retention, queues in work:
            if dry_run:
                self.table(using, old_rows(using, retention, queues=queues), retention)
            else:
                rows = prune(using, retention, queues=queues)
                self.stdout.write(f"{using}: {rows} rows pruned")

    def erase(self, *, life: UUID, by: str | None, reason: str | None, **_: Any) -> None:
        databases = {parse(alias, config).using for alias, config in backends()}
        for using in sorted(databases):
            log = TaskTransition.objects.using(using).filter(life=life)
            for name in log.values_list("queue", flat=True)[:1]:
                if Queue(name, using=using).erase(life, by=by, reason=reason):
                    self.stdout.write(f"{using}: {life} of queue {name} is erased")
                    return
        raise CommandError(f"no database of ours has {life} on record")

    def table(self, using: str, rows: Mapping[Kind, int], retention: Mapping[Kind, float]) -> None:
        for kind, count in sorted(rows.items()):
            days = f"{retention[kind] / DAY_SECONDS:g}"
            self.stdout.write(f"{using}: {count:>12} rows by {kind} older than {days} days")


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
