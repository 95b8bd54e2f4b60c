"""How often what happened: the log's rows, and the tallies of those it has lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Case, Count, F, Value, When

from ..models import Tally, Task, TaskTransition
from ..transitions import Kind, State


def add(using: str, counts: Mapping[tuple[str, str], int]) -> None:
    """Add to the tallies of (queue, kind), in the caller's transaction where there is one."""
    with transaction.atomic(using=using):
        for (queue, kind), count in sorted(counts.items()):
            tallies = Tally.objects.using(using)
            if not tallies.filter(queue=queue, kind=kind).update(count=F("count") + count):
                tallies.bulk_create([Tally(queue=queue, kind=kind, count=0)], ignore_conflicts=True)
                tallies.filter(queue=queue, kind=kind).update(count=F("count") + count)


def counted(using: str, queue: str, now: datetime) -> Counter[str]:
    """How often what has ever happened on *queue*, by kind; what the clock did included.

    One statement, so that no row is met both in the log and in the tallies. Reads all of the log.
    """
    tasks = Task.objects.using(using).filter(queue=queue)
    late = tasks.filter(state=State.LEASED, visible_at__lte=now)
    died = When(attempt__gte=F("max_attempts"), then=Value(Kind.DEAD))
    by_clock = late.annotate(what=Case(died, default=Value(Kind.LAPSED))).values_list("what")
    log = TaskTransition.objects.using(using).filter(queue=queue).values_list("kind")
    tallied = Tally.objects.using(using).filter(queue=queue).values_list("kind", "count")
    parts = log.annotate(Count("pk")).union(by_clock.annotate(Count("pk")), tallied, all=True)
    counts: Counter[str] = Counter()
    for kind, count in parts:
        counts[kind] += count
    return counts
