"""A task's log read as people ask about it: which attempts were there, and how did each end?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from .records import Attempt, DeadLetter, told_as
from .transitions import Kind, State, TaskRecord, Transition, as_of, overdue

RUNNING = "running"
VANISHED = "worker vanished"
ADOPTED = "adopted"


def attempts(history: Sequence[Transition]) -> tuple[Attempt, ...]:
    """The attempts of one life, all redrive rounds, oldest first; released leases are none."""
    found: dict[int, Attempt] = {}
    round_ = 0
    for transition in history:
        if transition.kind is Kind.REDRIVEN:
            round_ += 1
        elif transition.kind is Kind.LEASED:
            found[transition.position] = started(transition, round_)
        elif transition.kind is Kind.RELEASED:
            found.pop(transition.token or 0, None)
        elif transition.token in found and transition.kind in ENDINGS:
            found[transition.token] = ended(found[transition.token], transition)
    return tuple(found.values())


ENDINGS = frozenset(
    {Kind.ACKED, Kind.RETRIED, Kind.LAPSED, Kind.DEAD, Kind.DROPPED, Kind.CANCELLED}
)


def started(leased: Transition, round_: int) -> Attempt:
    return Attempt(
        round=round_,
        attempt=leased.attempt,
        token=leased.position,
        worker=leased.worker or "",
        started_at=leased.at,
        ended_at=None,
        outcome=RUNNING,
        error=None,
    )


def ended(attempt: Attempt, end: Transition) -> Attempt:
    if attempt.ended_at is not None:
        return attempt  # a cancellation of a task whose attempt was over already
    error = end.facts.get("error")
    if end.kind in (Kind.LAPSED, Kind.DEAD) and not error:
        outcome = ADOPTED if "adopted_by" in end.facts else VANISHED
    else:
        outcome = "failed" if error else str(end.kind)
    return replace(attempt, ended_at=end.at, outcome=outcome, error=error)


def with_the_clock(
    task: TaskRecord | None, history: Iterable[Transition], now: datetime
) -> list[Transition]:
    """*history*, with what the clock has done to *task* though nobody wrote it down yet."""
    late = overdue(task, now) if task else None
    return [*history, *([late] if late else [])]


def dead_letter(task: TaskRecord, history: Sequence[Transition], now: datetime) -> DeadLetter:
    """The dead *task* as an operator sees it, its failures attached."""
    tried = attempts(with_the_clock(task, history, now))
    return told_as(
        DeadLetter,
        task,
        payload=task.payload_value,
        attempts=task.attempt,
        error=last_error(task, now),
        at=task.visible_at,
        failures=tuple(attempt for attempt in tried if attempt.outcome != str(Kind.ACKED)),
    )


def last_error(task: TaskRecord, now: datetime) -> str:
    """Why *task* is where it is, in one line."""
    if as_of(task, now).state is State.DEAD and not task.last_error:
        return VANISHED
    return task.last_error
