"""What may be wrong with a log, and with a projection of it: read off values alone.

The log is right where each of its rows could have been written by a move; the projection is right
where it is what the log folds into. Whatever isn't so is a drift, and has a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from .errors import IllegalTransitionError
from .records import told_as
from .transitions import (
    ASIDES,
    OWN_ENDINGS,
    RULES,
    TASK,
    Kind,
    State,
    TaskRecord,
    Transition,
    attempt_after,
    fold,
)


class Drift(StrEnum):
    """What is wrong."""

    ILLEGAL = "illegal path"  # a row of the log that no move writes after those before it
    TOKEN = "wrong token"  # noqa: S105  one that doesn't grow, or isn't that of the lease
    MISSING = "missing"  # held by the log, and not in the projection
    EXTRA = "extra"  # in the projection, and not held by the log
    DIFFERS = "differs"  # in both, and not the same
    SEQUENCE = "sequence behind"  # tokens that were given out would be given out again


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One drift; ``what`` tells it in a sentence, without the values that tasks are given.

    ``seq`` is the number of the task, ``position`` the place in the log of the row that is wrong,
    ``mended`` what a rebuild did about it: empty where it did nothing.
    """

    drift: Drift
    what: str
    life: UUID | None = None
    queue: str = ""
    tenant: str = ""
    id: str = ""
    seq: int | None = None
    position: int | None = None
    mended: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTask:
    """A row of the projection, with the columns that follow from the others."""

    record: TaskRecord
    live_key: str | None
    lane: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """What the log tells of a life.

    ``seq`` is the place of its first row, the task's number. ``task`` is what it folds into, None
    also where it can't be folded: then ``legible`` is false. ``rows`` counts its transitions.
    """

    life: UUID
    seq: int
    task: TaskRecord | None
    legible: bool
    finding: Finding | None
    rows: int


class EnqueuedTwiceError(IllegalTransitionError):
    """A life has begun already: RULES, which know one row at a time, can't tell."""

    def __str__(self) -> str:
        return "enqueued a second time"


def read(history: Iterable[Transition]) -> Story:
    """Fold the *history* of one life, which isn't empty, and look for the first wrong row in it."""
    first: Transition | None = None
    task = finding = None
    named: TaskRecord | None = None
    rows, legible = 0, True
    for row in history:
        rows, first = rows + 1, first or row
        try:
            if row.kind is Kind.ENQUEUED and row is not first:
                raise EnqueuedTwiceError(row.kind, None)
            wrong = misstep(task, row)
            task = fold(task, row)
        except (IllegalTransitionError, ValueError, KeyError, TypeError) as error:
            wrong, legible = (Drift.ILLEGAL, unreadable(row, error)), False
        named = named or task
        finding = finding or (finding_of(row, named, *wrong) if wrong else None)
        if not legible:
            break
    if first is None:
        raise AssertionError("a life without a row")
    held = task if legible else None
    return Story(
        life=first.life, seq=first.position, task=held, legible=legible, finding=finding, rows=rows
    )


def unreadable(row: Transition, error: Exception) -> str:
    if isinstance(error, IllegalTransitionError):
        return str(error)
    return f"the {row.kind} row can't be read: {type(error).__name__}"


def finding_of(row: Transition, task: TaskRecord | None, drift: Drift, why: str) -> Finding:
    named = {"id": task.id, "seq": task.seq} if task else {"id": "", "seq": None}
    return told_as(Finding, row, drift=drift, what=why, mended="", **named)


def misstep(task: TaskRecord | None, row: Transition) -> tuple[Drift, str] | None:
    """What no move would have written so about *row*, where RULES allow it after *task*."""
    # Asides are written beside the moves of others: what they tell of the task may be older.
    if task is None or row.kind in ASIDES or task.state not in RULES[row.kind].after:
        return None
    if wrong := wrong_token(task, row):
        return Drift.TOKEN, wrong
    wrong = wrong_attempt(task, row) or wrong_time(task, row)
    return (Drift.ILLEGAL, wrong) if wrong else None


def wrong_token(task: TaskRecord, row: Transition) -> str:
    if row.kind is not Kind.LEASED:
        same = row.token == task.token
        return "" if same else f"{row.kind} under token {row.token}; the newest is {task.token}"
    if row.token == task.token:
        return f"token {row.token} is given out twice"
    if row.token is None or (task.token is not None and row.token < task.token):
        return f"token {row.token} after token {task.token}"
    own = row.token == row.position
    return "" if own else f"token {row.token} of the lease at position {row.position}"


def wrong_attempt(task: TaskRecord, row: Transition) -> str:
    if row.attempt != attempt_after(task, row.kind):
        return f"{row.kind} as attempt {row.attempt}, after attempt {task.attempt}"
    goes_on = row.kind in (Kind.LEASED, Kind.LAPSED, Kind.RETRIED)
    if goes_on and task.last_attempt:
        return f"{row.kind} after attempt {task.attempt} of {task.max_attempts}"
    if row.kind is Kind.DEAD and "error" not in row.facts and not task.last_attempt:
        return f"dead of lapsing after attempt {task.attempt} of {task.max_attempts}"
    return ""


def wrong_time(task: TaskRecord, row: Transition) -> str:
    deadline = task.visible_at
    failed = row.kind is Kind.DEAD and "error" in row.facts
    # A heartbeat isn't asked: those that moved the deadline before it may be pruned.
    if (row.kind in OWN_ENDINGS or failed) and row.at >= deadline:
        return f"{row.kind} at {row.at}, when the lease was over since {deadline}"
    by_clock = row.kind in (Kind.LAPSED, Kind.DEAD) and not failed and not row.facts
    if by_clock and row.at != deadline:
        return f"{row.kind} at {row.at}; the lease's deadline is {deadline}"
    return ""


TOLD_BY_NAME: Final = frozenset({"payload", "details", "last_error"})  # never their values


def compare(story: Story | None, stored: StoredTask | None, now: datetime) -> Finding | None:
    """How the projection's row differs from what the log tells; None where it doesn't.

    Args:
        story: of the life that begins at the row's number; None where none does.
        now: the present instant on the database's clock.
    """
    task = story.task if story else None
    if story and not story.legible:
        return None  # who knows what should stand there
    if task and stored:
        differing = "; ".join(differences(task, stored, now))
        return drifting(Drift.DIFFERS, task, differing) if differing else None
    if task:
        return drifting(Drift.MISSING, task, f"{task.state} by the log, and not there")
    if stored:
        known = "it has left" if story else "the log knows no task of that number"
        return drifting(Drift.EXTRA, stored.record, f"there, though by the log {known}")
    return None


def drifting(drift: Drift, task: TaskRecord, what: str) -> Finding:
    return told_as(Finding, task, drift=drift, what=what, position=None, mended="")


def differences(task: TaskRecord, stored: StoredTask, now: datetime) -> Iterator[str]:
    # Mostly all of it is the same, which is soon said.
    for name in () if task == stored.record else TASK:
        wanted, found = getattr(task, name), getattr(stored.record, name)
        if wanted != found:
            shown = name not in TOLD_BY_NAME
            yield f"{name} is {found}, by the log {wanted}" if shown else f"another {name}"
    if stored.live_key != stored.record.live_key:
        yield f"live_key is {stored.live_key}, not {stored.record.live_key}"
    if stored.lane not in lanes(stored.record, now):
        yield f"lane is {stored.lane}, which hides it or delivers it early"


def lanes(task: TaskRecord, now: datetime) -> frozenset[str | None]:
    """Where a claim may look for *task*; what has come due may not be written down yet."""
    if task.state is State.DEAD:
        return frozenset({None})
    if task.state is State.LEASED or task.visible_at > now:
        return frozenset({"later"})
    return frozenset({"now", "later"})
