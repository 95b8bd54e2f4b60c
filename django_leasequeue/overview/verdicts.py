"""How a queue is doing, in a word and with the reason. Pure: the same facts, the same verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.utils.translation import gettext, ngettext

from .wording import one_place, span

RECENT_SECONDS: Final = 600.0  # what "lately" means
LATE_SECONDS: Final = 60.0  # a task that waits no longer is no reason to worry
FAILED_MIN: Final = 5  # attempts in a row, before that says something


class Verdict(StrEnum):
    """What an operator has to know first."""

    HEALTHY = "healthy"
    CATCHING_UP = "catching up"
    BEHIND = "falling behind"
    STUCK = "stuck"
    PAUSED = "paused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the verdict on a queue depends on.

    ``told`` is the number of visible tasks for people, where it is no count of all.
    ``oldest`` is how long the oldest visible task has waited, in seconds; None: there is none.
    ``arrived``, ``done``, ``failed`` and ``lapsed`` are counts of the last ten minutes; ``threads``
    those of the ``workers`` that are alive and serve it.
    """

    visible: int = 0
    told: str = ""
    leased: int = 0
    oldest: float | None = None
    workers: int = 0
    threads: int = 0
    arrived: float = 0
    done: float = 0
    failed: float = 0
    lapsed: float = 0
    paused_by: str | None = None
    paused_reason: str | None = None
    paused_seconds: float | None = None


def verdict(facts: Facts) -> tuple[Verdict, str]:
    """The verdict on a queue, and why, in a sentence for people."""
    if facts.paused_seconds is not None:
        return Verdict.PAUSED, why_paused(facts, facts.paused_seconds)
    if facts.visible and not facts.workers:
        return Verdict.STUCK, why_unserved(facts)
    ended_badly = round(facts.failed + facts.lapsed)
    if ended_badly >= FAILED_MIN and not facts.done:
        return Verdict.STUCK, why_failing(ended_badly)
    if not facts.visible or (facts.oldest or 0) <= LATE_SECONDS:
        return Verdict.HEALTHY, why_healthy(facts)
    if not facts.done and not ended_badly and (facts.oldest or 0) > RECENT_SECONDS:
        return Verdict.STUCK, why_stuck(facts)
    return behind(facts)


def why_paused(facts: Facts, seconds: float) -> str:
    told = {
        "by": facts.paused_by or gettext("somebody"),
        "span": span(seconds),
        "reason": facts.paused_reason,
    }
    if facts.paused_reason:
        return gettext("by %(by)s, for %(span)s: %(reason)s") % told
    return gettext("by %(by)s, for %(span)s.") % told


def why_unserved(facts: Facts) -> str:
    said = ngettext(
        "%(count)s task waits, no worker is there for this queue.",
        "%(count)s tasks wait, no worker is there for this queue.",
        facts.visible,
    )
    return said % waiting(facts)


def why_failing(ended_badly: int) -> str:
    said = ngettext(
        "Of %d attempt in the last ten minutes not one succeeded.",
        "Of %d attempts in the last ten minutes not one succeeded.",
        ended_badly,
    )
    return said % ended_badly


def why_healthy(facts: Facts) -> str:
    if facts.visible:
        said = ngettext(
            "%(count)s task waits, the oldest for %(span)s.",
            "%(count)s tasks wait, the oldest for %(span)s.",
            facts.visible,
        )
        return said % waiting(facts)
    if facts.leased:
        return ngettext("%d task runs.", "%d tasks run.", facts.leased) % facts.leased
    return gettext("Nothing waits.")


def why_stuck(facts: Facts) -> str:
    if facts.leased >= facts.threads > 0:
        said = ngettext(
            "%(count)s task waits, every thread has been busy for more than ten minutes.",
            "%(count)s tasks wait, every thread has been busy for more than ten minutes.",
            facts.visible,
        )
    else:
        said = ngettext(
            "%(count)s task waits, nothing has ended for more than ten minutes.",
            "%(count)s tasks wait, nothing has ended for more than ten minutes.",
            facts.visible,
        )
    return said % waiting(facts)


def behind(facts: Facts) -> tuple[Verdict, str]:
    minutes = RECENT_SECONDS / 60
    told = waiting(facts) | {
        "arrived": one_place(facts.arrived / minutes),
        "done": one_place(facts.done / minutes),
    }
    said = ngettext(
        "%(count)s task waits, the oldest for %(span)s; a minute %(arrived)s arrive, "
        "%(done)s are done.",
        "%(count)s tasks wait, the oldest for %(span)s; a minute %(arrived)s arrive, "
        "%(done)s are done.",
        facts.visible,
    )
    return (Verdict.CATCHING_UP if facts.done > facts.arrived else Verdict.BEHIND), said % told


def waiting(facts: Facts) -> dict[str, str]:
    """How many wait, and how long the oldest has."""
    return {"count": facts.told or str(facts.visible), "span": span(facts.oldest or 0)}
