"""One task's story for the detail page, read from the log: attempts, and what operators did.

And whether its code is still there, judged without importing any of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from ..overview.wording import span
from ..records import Attempt
from ..story import ADOPTED, RUNNING, VANISHED, attempts, last_error, with_the_clock
from ..transitions import ASIDES, Kind, State, TaskRecord, Transition, as_of, born, fold

OUTCOMES: Final[dict[str, Any]] = {
    RUNNING: _("running"),
    VANISHED: _("worker vanished"),
    ADOPTED: _("given back by the worker's successor"),
    "failed": _("failed"),
    Kind.ACKED: _("done"),
    Kind.DROPPED: _("dropped"),
    Kind.CANCELLED: _("cancelled"),
}
HELD: Final[dict[State, Any]] = {
    State.DEAD: pgettext_lazy("task", "Dead since"),
    State.READY: pgettext_lazy("task", "Ready since"),
    State.SCHEDULED: pgettext_lazy("task", "Scheduled for"),
    State.LEASED: pgettext_lazy("task", "Leased until"),
}
LEFT: Final[dict[Kind, Any]] = {
    Kind.ACKED: pgettext_lazy("task", "Done at"),
    Kind.DROPPED: pgettext_lazy("task", "Dropped at"),
    Kind.CANCELLED: pgettext_lazy("task", "Cancelled at"),
}
ACTS: Final[dict[str, Any]] = {
    Kind.REDRIVEN: _("Redriven"),
    Kind.CANCELLED: _("Cancelled"),
    Kind.ERASED: _("Erased"),
}
ERASED: Final[Any] = _("(erased)")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An attempt as a row of the timeline."""

    position: int
    attempt: Attempt
    outcome: Any
    duration: str


@dataclass(frozen=True, kw_only=True)
class Act:
    """What an operator did: who, when and why."""

    position: int
    what: Any
    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Story:
    """A task, where it stands now, and how it came there. JSON is pretty text."""

    task: TaskRecord
    standing: Any
    at: datetime
    is_held: bool
    is_dead: bool
    was_dead: bool
    error: Any
    enqueued_at: datetime
    events: tuple[Delivery | Act, ...]
    payload: Any
    details: str
    result: str


def story_of(held: TaskRecord | None, history: Sequence[Transition], now: datetime) -> Story:
    """The story that *history*, a life from its ``enqueued`` row on, tells.

    Args:
        held: the task as stored; None where it has left.
    """
    known = with_the_clock(held, history, now)
    task = as_of(held, now) if held else last_held(history)
    end = [row for row in known if row.kind not in ASIDES][-1]
    return Story(
        task=task,
        standing=HELD[task.state] if held else LEFT.get(end.kind, _("Gone without a record since")),
        at=task.visible_at if held else end.at,
        is_held=held is not None,
        is_dead=held is not None and task.state is State.DEAD,
        was_dead=any(transition.kind is Kind.DEAD for transition in known),
        error=OUTCOMES[VANISHED] if (error := last_error(task, now)) == VANISHED else error,
        enqueued_at=history[0].at,
        events=tuple(sorted(events(known), key=lambda event: event.position)),
        payload=ERASED if any(row.kind is Kind.ERASED for row in known) else pretty(task.payload),
        details=pretty(task.details),
        result=pretty_value(end.facts["result"]) if "result" in end.facts else "",
    )


def last_held(history: Sequence[Transition]) -> TaskRecord:
    """The task as it was when it left."""
    task = born(history[0])
    for transition in history[1:]:
        task = fold(task, transition) or task
    return task


def events(history: Sequence[Transition]) -> list[Delivery | Act]:
    deliveries = [delivery(attempt) for attempt in attempts(history)]
    return [*deliveries, *(act(done) for done in history if done.kind in ACTS)]


def delivery(attempt: Attempt) -> Delivery:
    lasted = attempt.ended_at - attempt.started_at if attempt.ended_at else None
    return Delivery(
        position=attempt.token,
        attempt=attempt,
        outcome=OUTCOMES.get(attempt.outcome, attempt.outcome),
        duration=duration(lasted) if lasted is not None else "",
    )


def duration(lasted: timedelta) -> str:
    seconds = lasted.total_seconds()
    return f"{number_format(f'{seconds:.3g}')} s" if seconds < 60 else span(seconds)


def act(done: Transition) -> Act:
    facts = done.facts
    return Act(
        position=done.position,
        what=ACTS[done.kind],
        at=done.at,
        by=facts.get("by") or "",
        reason=facts.get("reason") or "",
    )


def pretty(text: str | None) -> str:
    return pretty_value(json.loads(text)) if text else ""


def pretty_value(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def is_gone(path: str) -> bool:
    """Whether the function at the dotted *path* can't be there: no such module, or not in it.

    A module that isn't loaded is only looked for: what it would say is not known.
    """
    module, _, function = path.rpartition(".")
    if loaded := sys.modules.get(module):
        return function not in vars(loaded)
    try:
        return not is_found(module)
    except (ImportError, LookupError):
        return False  # a finder that needs the parent imported


def is_found(module: str) -> bool:
    """Whether *module* and the packages around it have a file, found part by part."""
    name, places = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        specs = (finder.find_spec(name, places) for finder in sys.meta_path)
        spec = next(filter(None, specs), None) if part.isidentifier() else None
        if spec is None:
            return False
        places = spec.submodule_search_locations
    return True
