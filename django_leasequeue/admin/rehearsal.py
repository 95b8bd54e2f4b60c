"""What a verb would meet: the selected tasks by kind, in one look, and what would come of it.

Nothing is moved, nothing is locked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, QuerySet

from ..batches import would_stay
from ..models import Task
from ..policy import gap_of
from ..transitions import State
from .verbs import TOLD_MAX, SelectionForm


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Tasks of one queue and function whose errors have something in common.

    ``leased`` of them run, ``keyed`` have a dedupe key.
    """

    queue: str
    path: str
    fingerprint: str | None
    count: int
    leased: int
    keyed: int

    @property
    def function(self) -> str:
        return self.path.rpartition(".")[2]


def kinds_of(tasks: QuerySet[Task], now: datetime) -> list[Kind]:
    """The kinds of *tasks*, the most frequent first."""
    rows = tasks.order_by().values("queue", "path", "fingerprint")
    leased = Count("pk", filter=Q(state=State.LEASED, visible_at__gt=now))
    rows = rows.annotate(count=Count("pk"), leased=leased, keyed=Count("dedupe_key"))
    return [Kind(**row) for row in rows.order_by("-count", "queue", "path", "fingerprint")]


def by_queue(kinds: Iterable[Kind]) -> list[dict[str, object]]:
    counts: Counter[str] = Counter()
    for kind in kinds:
        counts[kind.queue] += kind.count
    return [{"queue": queue, "count": counts[queue]} for queue in sorted(counts)]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """How many would move, how many would stay for their key's sake, and when the last is due."""

    moves: int
    stay: int
    last_at: datetime | None
    kinds: Sequence[Kind]
    more: bool


def rehearse(
    tasks: QuerySet[Task], kinds: Sequence[Kind], now: datetime, form: SelectionForm
) -> Rehearsal:
    count = sum(kind.count for kind in kinds)
    at_stake = "rate" in form.fields and any(kind.keyed for kind in kinds)  # of a redrive only
    stay = would_stay(tasks, now) if at_stake else 0
    rate = form.cleaned_data.get("rate")
    return Rehearsal(
        moves=count - stay,
        stay=stay,
        last_at=now + max(0, count - stay - 1) * gap_of(rate) if rate else None,
        kinds=kinds[:TOLD_MAX],
        more=len(kinds) > TOLD_MAX,
    )
