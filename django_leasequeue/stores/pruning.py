"""A batch of pruning through the ORM: what the function of migration 0002 does on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from ..models import Effect, TaskTransition
from ..transitions import ENDED, REPEATED, Kind
from . import tallies
from .base import Old, Pruned

DELETED_AT_ONCE: Final = 500  # a statement takes only so many parameters


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What may go from the log of *using*, inside the caller's transaction.

    Args:
        now: rows dated later come from a clock that was set back since; they stop nobody.
    """

    using: str
    asked: Old
    now: datetime

    @property
    def before(self) -> datetime:
        return self.now - self.asked.age

    @property
    def log(self) -> QuerySet[TaskTransition]:
        return QuerySet(TaskTransition, using=self.using)

    def prune(self, behind: int, size: int) -> Pruned:
        upto, more = self.reach(behind, size)
        old = self.old(behind, upto)
        ended = set(old.filter(kind__in=ENDED).values_list("life", flat=True))
        # Of those that ran long or were repeated often, first a batch of what has no bound.
        unbounded = self.log.filter(life__in=ended, kind__in=REPEATED).order_by("life", "id")
        doomed = list(unbounded.values_list("pk", flat=True)[:size])
        if len(doomed) == size:
            rows = self.forget(self.log.filter(pk__in=doomed))
            return Pruned(rows=rows, upto=behind, more=True)
        outdated = list(self.outdated(old, upto).values_list("pk", flat=True))
        rows = self.forget(self.log.filter(life__in=ended))
        rows += self.forget(old.filter(kind=Kind.DUPLICATE))
        rows += self.forget(self.log.filter(pk__in=outdated))
        Effect.objects.using(self.using).filter(life__in=ended).delete()
        return Pruned(rows=rows, upto=upto, more=more)

    def reach(self, behind: int, size: int) -> tuple[int, bool]:
        """The position up to which all is old enough, and whether there is more behind it."""
        rows = self.log.filter(pk__gt=behind).order_by("pk").values_list("pk", "at")[:size]
        upto, count = behind, 0
        for position, at in rows:
            if self.before <= at <= self.now:
                return upto, False
            upto, count = position, count + 1
        return upto, count == size

    def old(self, behind: int, upto: int) -> QuerySet[TaskTransition]:
        """The rows there that are asked for."""
        rows = self.log.filter(pk__gt=behind, pk__lte=upto, at__lt=self.before)
        rows = rows.filter(kind__in=self.asked.kinds)
        queues = self.asked.queues
        return rows if queues is None else rows.filter(queue__in=queues)

    def outdated(self, old: QuerySet[TaskTransition], upto: int) -> QuerySet[TaskTransition]:
        """The heartbeats, of the lives that had one, that a later one has made up for."""
        lives = set(old.filter(kind=Kind.HEARTBEAT).values_list("life", flat=True))
        reached = self.log.filter(pk__lte=upto, at__lt=self.before)
        return made_up_for(reached.filter(life__in=lives), by=reached)

    def forget(self, rows: QuerySet[TaskTransition]) -> int:
        """Delete *rows* and count them in the tallies; how many there were."""
        found = list(rows.select_for_update().order_by("pk").values_list("pk", "queue", "kind"))
        for start in range(0, len(found), DELETED_AT_ONCE):
            some = [pk for pk, *_ in found[start : start + DELETED_AT_ONCE]]
            self.log.filter(pk__in=some).delete()
        tallies.add(self.using, Counter((queue, kind) for _, queue, kind in found))
        return len(found)


def made_up_for(
    rows: QuerySet[TaskTransition], *, by: QuerySet[TaskTransition]
) -> QuerySet[TaskTransition]:
    """Heartbeats but the last one of their lease, and the last one that left details."""
    same = {"kind": Kind.HEARTBEAT, "life": OuterRef("life"), "token": OuterRef("token")}
    later = by.filter(**same, pk__gt=OuterRef("pk"))
    telling = later.filter(data__isnull=False)
    outdated = Q(Exists(telling)) | Q(Exists(later), data__isnull=True)
    return rows.filter(outdated, kind=Kind.HEARTBEAT)


def old_rows(using: str, kind: Kind, *, queues: Sequence[str] | None, before: datetime) -> int:
    """How many rows pruning of *kind* would remove, as things stand. Reads all of the log."""
    log = TaskTransition.objects.using(using)
    old = log.filter(at__lt=before)
    asked = old.filter(kind=kind) if queues is None else old.filter(kind=kind, queue__in=queues)
    if kind in ENDED:
        return log.filter(life__in=asked.values("life")).count()
    return made_up_for(asked, by=old).count() if kind is Kind.HEARTBEAT else asked.count()
