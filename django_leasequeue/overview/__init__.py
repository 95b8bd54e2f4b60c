"""How the queues of a database are doing, for the admin, the terminal and the metrics.

Everything here reads, at a bounded cost: what holds for a million tasks and ten million rows of
the log is held by ``tests/overview``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial

from ..conf import backends, parse, queues_of
from ..records import Paused
from ..registry import WorkerFacts, serving, workers
from ..stores import store_for
from . import counting, rates
from .counting import Counts, Held
from .rates import DAY, HOUR, Rates, Window
from .verdicts import RECENT_SECONDS, Facts, Verdict, verdict

__all__ = [
    "DAY",
    "HOUR",
    "Overview",
    "QueueView",
    "Verdict",
    "known_queues",
    "overview",
    "served_databases",
]


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """One queue at an instant: what it holds, what happened on it, who works on it.

    ``oldest`` is how long the oldest visible task has waited, in seconds; ``verdict`` has its
    ``reason``, a sentence for people.
    """

    name: str
    now: datetime
    held: Held
    rates: Sequence[Rates]
    workers: Sequence[WorkerFacts]
    paused: Paused | None

    @property
    def total(self) -> Counts:
        return self.held.total

    @property
    def is_blank(self) -> bool:
        """Whether it holds nothing, and nothing happened on it lately."""
        return not (self.held.tenants or any(rates.counts for rates in self.rates))

    @property
    def oldest(self) -> float | None:
        since = self.total.since
        return (self.now - since).total_seconds() if since else None

    @property
    def verdict(self) -> Verdict:
        return self.judged[0]

    @property
    def reason(self) -> str:
        return self.judged[1]

    @cached_property
    def judged(self) -> tuple[Verdict, str]:
        total = self.total
        lately = partial(self.rates[0].total, seconds=RECENT_SECONDS)
        return verdict(
            Facts(
                visible=total.visible,
                told=self.held.told("visible"),
                leased=total.leased,
                oldest=self.oldest,
                workers=len(self.workers),
                threads=sum(worker.threads for worker in self.workers),
                arrived=lately("arrivals"),
                done=lately("completions"),
                failed=lately("failures"),
                lapsed=lately("lapses"),
                paused_by=self.paused.by if self.paused else None,
                paused_reason=self.paused.reason if self.paused else None,
                paused_seconds=(self.now - self.paused.at).total_seconds() if self.paused else None,
            )
        )


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The queues of one database, as they are at an instant of its clock."""

    using: str
    now: datetime
    queues: Sequence[QueueView]
    workers: Sequence[WorkerFacts]


def overview(
    using: str,
    *,
    windows: Sequence[Window] = (HOUR,),
    only: Iterable[str] | None = None,
    tenants: Collection[str] | None = None,
) -> Overview:
    """How the queues in the database *using* are doing.

    Args:
        windows: of what happened; the first one is what the verdict looks at.
        only: these queues; None: all that hold, serve or did anything lately.
        tenants: whose tasks count; None: all.
    """
    store = store_for(using)
    now = store.now()
    happened = [rates.rates(using, now, window, tenants) for window in windows]
    pauses, everyone = store.pauses(), workers(using)
    served = [worker.queues for worker in everyone]
    names = sorted(known(using, happened[0], pauses, *served) if only is None else set(only))
    views = [
        QueueView(
            name=name,
            now=now,
            held=counting.held(using, name, now, tenants, queues=len(names)),
            rates=[of.get(name, Rates(window=w)) for of, w in zip(happened, windows, strict=True)],
            workers=serving(name, everyone),
            paused=pauses.get(name),
        )
        for name in names
    ]
    visible_to = [within(worker, tenants) for worker in everyone]
    return Overview(using=using, now=now, queues=views, workers=visible_to)


def known_queues(using: str) -> set[str]:
    """The queues of a database: named by the settings, served, paused, or holding something."""
    return known(using, store_for(using).pauses(), *(each.queues for each in workers(using)))


def known(using: str, *sources: Iterable[str]) -> set[str]:
    """The queues that the settings name, that hold something, or that are among *sources*."""
    ours = (each for each in backends() if parse(*each).using == using)
    return {*counting.queues(using)}.union(*(queues_of(*each) for each in ours), *sources)


def within(worker: WorkerFacts, tenants: Collection[str] | None) -> WorkerFacts:
    """*worker*, without what it does for others than *tenants*."""
    if tenants is None:
        return worker
    return replace(worker, tasks=tuple(task for task in worker.tasks if task.tenant in tenants))


def served_databases() -> list[str]:
    """The databases of our backends, in the order of the settings."""
    return list(dict.fromkeys(parse(alias, config).using for alias, config in backends()))
