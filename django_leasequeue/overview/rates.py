"""How much happened on each queue lately, from a bounded number of the log's rows.

The log has no index on its instants: that would cost every move. But its positions rise with time,
so that halving finds where an hour ago is. What was written since is read whole where it is little;
of more, evenly spread runs of a few rows are read, each standing for its neighbours. Plots are
estimates then, and say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from django.db.models import Max, Min, QuerySet
from django.db.models.functions import Left

from ..models import TaskTransition
from ..transitions import Kind

ROWS_MAX: Final = 4_000  # that a plot reads
# So many of them stand side by side: they share a page, and reading those is what takes time.
RUN: Final = 10
CHUNK: Final = 1000
GOLDEN: Final = 0.618_033_988_749_895
DATED_BACK: Final = (Kind.LAPSED, Kind.DEAD)  # when the clock did it, not when it was written
# How the data of a death begins that wasn't the clock's, or an adopter's.
FAILED: Final = '{"error"'
WHAT: Final = ("arrivals", "completions", "failures", "lapses")
KINDS: Final = {
    Kind.ENQUEUED: "arrivals",
    Kind.ACKED: "completions",
    Kind.RETRIED: "failures",
    Kind.DROPPED: "failures",
    Kind.LAPSED: "lapses",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A stretch of time up to now, in equal parts."""

    seconds: int
    parts: int

    @property
    def part_seconds(self) -> float:
        return self.seconds / self.parts


HOUR: Final = Window(seconds=3600, parts=60)
DAY: Final = Window(seconds=86_400, parts=48)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often what happened on one queue, in each part of a window, oldest first.

    ``exact`` is False where the counts are estimates.
    """

    window: Window
    exact: bool = True
    counts: Mapping[str, list[float]] = field(default_factory=dict)

    def of(self, what: str) -> list[float]:
        return self.counts.get(what) or [0.0] * self.window.parts

    def total(self, what: str, *, seconds: float | None = None) -> float:
        """How often, in the last so many seconds; None: in all of the window."""
        parts = self.of(what)
        return sum(parts if seconds is None else parts[-ceil(seconds / self.window.part_seconds) :])

    def per_minute(self, what: str, *, seconds: float | None = None) -> float:
        return self.total(what, seconds=seconds) * 60 / (seconds or self.window.seconds)


def rates(
    using: str, now: datetime, window: Window, tenants: Collection[str] | None = None
) -> Mapping[str, Rates]:
    """What happened lately, by queue; queues on which nothing did are missing.

    Args:
        tenants: whose tasks count; None: all.
    """
    log = TaskTransition.objects.using(using)
    begin = now - timedelta(seconds=window.seconds)
    first = position_at(log, begin)
    last = log.newest()
    step = max(1, ceil((last - first + 1) / ROWS_MAX))
    counts: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for queue, tenant, kind, at, told in sampled(log, first, last, step):
        part = int((at - begin).total_seconds() / window.part_seconds)
        what = KINDS.get(kind) or ("failures" if told == FAILED else "lapses")
        if part >= 0 and (tenants is None or tenant in tenants):
            parts = counts[queue].setdefault(what, [0.0] * window.parts)
            parts[min(part, window.parts - 1)] += step
    exact = step == 1
    return {queue: Rates(window=window, exact=exact, counts=of) for queue, of in counts.items()}


def sampled(
    log: QuerySet[TaskTransition], first: int, last: int, step: int
) -> Iterator[tuple[Any, ...]]:
    """Queue, tenant, kind, instant, and how the data begins; one row a step.

    Where in its stretch a run is taken varies evenly: by a fixed stride one would meet the same
    kinds of rows again and again, since moves follow each other in a rhythm.
    """
    wanted = log.filter(kind__in=[*KINDS, Kind.DEAD]).annotate(told=Left("data", len(FAILED)))
    columns = ("queue", "tenant", "kind", "at", "told")
    if step == 1:
        yield from wanted.filter(pk__gte=first, pk__lte=last).values_list(*columns)
        return
    stretch = step * RUN
    starts = range(first, last + 1, stretch)
    runs = [start + int(n * GOLDEN % 1 * (stretch - RUN)) for n, start in enumerate(starts)]
    spread = [run + place for run in runs for place in range(RUN)]
    for at in range(0, len(spread), CHUNK):
        yield from wanted.filter(pk__in=spread[at : at + CHUNK]).values_list(*columns)


def position_at(log: QuerySet[TaskTransition], moment: datetime) -> int:
    """The first position written at or after *moment*; behind the end where there is none."""
    ends = log.aggregate(first=Min("pk"), last=Max("pk"))
    low, high = ends["first"] or 0, (ends["last"] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        rows = log.filter(pk__gte=middle, pk__lt=high).exclude(kind__in=DATED_BACK)
        row = rows.order_by("pk").only("at").first()
        if row is None or row.at >= moment:
            high = middle
        else:
            low = row.pk + 1
    return low
