"""The state machine: which transition may follow which, and what it does to the task.

                         enqueued
                            │
                            ▼    leased           acked · dropped · cancelled
        ┌───────────────► READY ────────► LEASED ──────────────────────────────► (left)
        │   redriven        ▲               │  ▲ │
        │                   └───────────────┘  └─┘ heartbeat
        │          lapsed · retried · released │
        │                                      │ dead
        └──────────────── DEAD ◄───────────────┘

Pure: no table, no clock, no driver. The in-memory and the portable store run on these functions;
the SQL of the PostgreSQL store says the same in its own words and is held against them by test.

A stored task is READY, LEASED or DEAD. SCHEDULED (ready, but not before a later instant) and what
the clock has done to a lease are read off ``visible_at`` by ``as_of``: true before anyone writes
it down. ``visible_at`` is the one time column: when a ready task may be claimed, when a leased
one's deadline passes, when a dead one died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from .errors import IllegalTransitionError, LostReason


class State(StrEnum):
    """Where a held task stands."""

    READY = "ready"
    SCHEDULED = "scheduled"  # never stored: ready, with visible_at still to come
    LEASED = "leased"
    DEAD = "dead"


class Kind(StrEnum):
    """What a row of the log says happened."""

    ENQUEUED = "enqueued"
    DUPLICATE = "duplicate"
    LEASED = "leased"
    HEARTBEAT = "heartbeat"
    ACKED = "acked"
    RETRIED = "retried"
    RELEASED = "released"
    LAPSED = "lapsed"
    DEAD = "dead"
    DROPPED = "dropped"
    REDRIVEN = "redriven"
    CANCELLED = "cancelled"
    ERASED = "erased"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One immutable row of the log.

    ``position`` is the row's place in the log, 0 until it is appended. ``attempt``, ``token``,
    ``worker`` and ``visible_at`` are the task's after this transition; the token of a ``leased``
    row is its own position. ``id`` and ``payload`` (JSON text) stand on ``enqueued`` rows;
    ``data`` is a JSON object whose keys depend on the kind: limits, details, result, error, by.
    """

    kind: Kind
    at: datetime
    life: UUID
    queue: str
    tenant: str
    attempt: int = 0
    token: int | None = None
    worker: str | None = None
    visible_at: datetime | None = None
    position: int = 0
    id: str | None = None
    payload: str | None = field(default=None, repr=False)
    data: str | None = field(default=None, repr=False)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The ``data`` column, parsed; empty where there is none."""
        facts: dict[str, Any] = json.loads(self.data) if self.data else {}
        return facts


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRecord:
    """A held task: the fold of its transitions."""

    seq: int
    life: UUID
    queue: str
    tenant: str
    id: str
    path: str
    payload: str = field(repr=False)
    priority: int
    dedupe_key: str | None
    max_attempts: int
    visibility: timedelta
    max_lease: timedelta
    state: State
    enqueued_at: datetime
    visible_at: datetime
    attempt: int = 0
    token: int | None = None
    worker: str | None = None
    leased_at: datetime | None = None
    details: str | None = field(default=None, repr=False)
    last_error: str = ""

    @property
    def last_attempt(self) -> bool:
        """Whether no further delivery follows this one."""
        return self.attempt >= self.max_attempts

    @property
    def payload_value(self) -> Any:
        """The payload, parsed."""
        return json.loads(self.payload)

    @property
    def live_key(self) -> str | None:
        """The dedupe key, while it binds: a dead letter's key is free."""
        return None if self.state is State.DEAD else self.dedupe_key


TRANSITION: Final = tuple(each.name for each in fields(Transition))
TASK: Final = tuple(each.name for each in fields(TaskRecord))
NOT_HELD: Final = None
HELD: Final = frozenset({State.READY, State.LEASED, State.DEAD})


class Nowhere(Enum):
    """Where a transition leads that only tells something of the task."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Nowhere.UNCHANGED


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Where a transition may stand, and where it leads."""

    after: Set[State | None]
    leads_to: State | Nowhere | None


RULES: Final[Mapping[Kind, Rule]] = {
    Kind.ENQUEUED: Rule(after={NOT_HELD}, leads_to=State.READY),
    # A running task isn't locked for it, and may be done when the duplicate's row is written.
    Kind.DUPLICATE: Rule(after=HELD | {NOT_HELD}, leads_to=UNCHANGED),
    Kind.LEASED: Rule(after={State.READY}, leads_to=State.LEASED),
    Kind.HEARTBEAT: Rule(after={State.LEASED}, leads_to=State.LEASED),
    Kind.ACKED: Rule(after={State.LEASED}, leads_to=NOT_HELD),
    Kind.RETRIED: Rule(after={State.LEASED}, leads_to=State.READY),
    Kind.RELEASED: Rule(after={State.LEASED}, leads_to=State.READY),
    Kind.LAPSED: Rule(after={State.LEASED}, leads_to=State.READY),
    Kind.DEAD: Rule(after={State.LEASED}, leads_to=State.DEAD),
    Kind.DROPPED: Rule(after={State.LEASED}, leads_to=NOT_HELD),
    Kind.REDRIVEN: Rule(after={State.DEAD}, leads_to=State.READY),
    Kind.CANCELLED: Rule(after=HELD, leads_to=NOT_HELD),
    Kind.ERASED: Rule(after=HELD | {NOT_HELD}, leads_to=UNCHANGED),
}
ASIDES: Final = frozenset(kind for kind, rule in RULES.items() if rule.leads_to is UNCHANGED)

# What may be pruned: all of a life by the row that ended it, and rows by what repeats them.
ENDED: Final = frozenset(kind for kind, rule in RULES.items() if rule.leads_to is NOT_HELD)
REPEATED: Final = frozenset({Kind.DUPLICATE, Kind.HEARTBEAT})
FORGETTABLE: Final = ENDED | REPEATED


def fold(task: TaskRecord | None, transition: Transition) -> TaskRecord | None:
    """The task after *transition*; None where it isn't held any more.

    Raises:
        IllegalTransitionError: the transition may not follow the task's state.
    """
    found = task.state if task else NOT_HELD
    here = RULES[transition.kind]
    if found not in here.after:
        raise IllegalTransitionError(transition.kind, found)
    if transition.kind is Kind.ENQUEUED:
        return born(transition)
    if isinstance(here.leads_to, Nowhere):
        return erased(task) if task and transition.kind is Kind.ERASED else task
    if here.leads_to is NOT_HELD or task is None:
        return None
    return moved(task, transition, here.leads_to)


def fold_all(transitions: Iterable[Transition]) -> TaskRecord | None:
    """The task after all of its *transitions*, in log order."""
    task = None
    for transition in transitions:
        task = fold(task, transition)
    return task


MICROSECOND: Final = timedelta(microseconds=1)
ENQUEUED: Final = (
    *("path", "priority", "dedupe_key"),
    *("max_attempts", "visibility_us", "max_lease_us"),
)


def born(transition: Transition) -> TaskRecord:
    """The task that an ``enqueued`` transition begins."""
    facts = transition.facts
    if transition.id is None or transition.payload is None or transition.visible_at is None:
        raise ValueError("an enqueued transition needs id, payload and visible_at")
    return TaskRecord(
        seq=transition.position,
        life=transition.life,
        queue=transition.queue,
        tenant=transition.tenant,
        id=transition.id,
        path=facts["path"],
        payload=transition.payload,
        priority=facts["priority"],
        dedupe_key=facts["dedupe_key"],
        max_attempts=facts["max_attempts"],
        visibility=timedelta(microseconds=facts["visibility_us"]),
        max_lease=timedelta(microseconds=facts["max_lease_us"]),
        state=State.READY,
        enqueued_at=transition.at,
        visible_at=transition.visible_at,
    )


def enqueued_data(task: Any) -> str:
    """The ``data`` of the ``enqueued`` transition that begins *task*, as ``born`` reads it.

    Args:
        task: one that is admitted, or held.
    """
    limits = (task.max_attempts, task.visibility // MICROSECOND, task.max_lease // MICROSECOND)
    return data_of(task.path, task.priority, task.dedupe_key, *limits)


@lru_cache(maxsize=1024)  # the tasks of one function mostly share it
def data_of(*values: Any) -> str:
    return json_text(dict(zip(ENQUEUED, values, strict=True)))


def moved(task: TaskRecord, transition: Transition, state: State) -> TaskRecord:
    """The held *task*, moved to *state* by *transition*."""
    facts = transition.facts
    leased = transition.kind is Kind.LEASED
    return replace(
        task,
        state=state,
        visible_at=transition.visible_at or task.visible_at,
        attempt=transition.attempt,
        token=transition.position if leased else task.token,
        worker=transition.worker,
        leased_at=transition.at if leased else task.leased_at,
        details=json_text(facts["details"]) if "details" in facts else task.details,
        last_error=facts["error"]["summary"] if "error" in facts else task.last_error,
    )


NOTHING: Final = "null"  # the payload of an erased task
ERASED_ERROR: Final = {"type": "", "message": "erased", "traceback": "", "summary": "erased"}


def erased(task: TaskRecord) -> TaskRecord:
    """The held *task* without what it was told and what it told."""
    last_error = ERASED_ERROR["summary"] if task.last_error else ""
    return replace(task, payload=NOTHING, details=None, last_error=last_error)


def blanked(transition: Transition) -> Transition:
    """The row of the log as an erasure leaves it: what happened, but no payload, details, result
    or error."""
    facts = {k: v for k, v in transition.facts.items() if k not in ("details", "result")}
    if "error" in facts:
        facts["error"] = ERASED_ERROR
    return replace(
        transition,
        payload=None if transition.payload is None else NOTHING,
        data=json_text(facts) if facts else None,
    )


JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_text(value: Any) -> str:
    """JSON as the tables hold it: the same characters on every database."""
    return JSON.encode(value)


def as_of(task: TaskRecord, now: datetime) -> TaskRecord:
    """The task as the clock has it at *now*, whether or not anyone wrote it down.

    ``visible_at`` stays: a lapsed task is ready, or dead, as of its deadline.
    """
    if task.state is State.LEASED and task.visible_at <= now:
        return replace(task, state=State.DEAD if task.last_attempt else State.READY)
    if task.state is State.READY and task.visible_at > now:
        return replace(task, state=State.SCHEDULED)
    return task


def attempt_after(task: TaskRecord, kind: Kind) -> int:
    """The number of *task*'s delivery after a transition of *kind*."""
    if kind is Kind.REDRIVEN:
        return 0
    return task.attempt + {Kind.LEASED: 1, Kind.RELEASED: -1}.get(kind, 0)


def follow(
    task: TaskRecord,
    kind: Kind,
    at: datetime,
    *,
    worker: str | None = None,
    visible_at: datetime | None = None,
    **facts: Any,
) -> Transition:
    """The transition of *kind* for *task*; what isn't named stays as the task has it."""
    return Transition(
        kind=kind,
        at=at,
        life=task.life,
        queue=task.queue,
        tenant=task.tenant,
        attempt=attempt_after(task, kind),
        token=task.token,
        worker=worker or task.worker,
        visible_at=visible_at,
        data=json_text(facts) if facts else None,
    )


def overdue(task: TaskRecord, now: datetime) -> Transition | None:
    """What the clock did to *task*'s lease, dated when it did it; None where it did nothing."""
    if task.state is not State.LEASED or task.visible_at > now:
        return None
    kind = Kind.DEAD if task.last_attempt else Kind.LAPSED
    return follow(task, kind, task.visible_at, visible_at=task.visible_at)


OWN_ENDINGS: Final = frozenset({Kind.ACKED, Kind.DROPPED, Kind.RETRIED, Kind.RELEASED})


def lost_reason(
    token: int, task: TaskRecord | None, history: Sequence[Transition], now: datetime
) -> LostReason | None:
    """Why the lease *token* isn't live at *now*, None where it is live.

    Args:
        task: the held task as stored; None where it has left.
        history: the transitions of the task's life from position *token* on, in log order.
    """
    if task and task.state is State.LEASED and task.token == token and now < task.visible_at:
        return None
    kinds = {transition.kind for transition in history if transition.position > token}
    if Kind.LEASED in kinds:
        return LostReason.SUPERSEDED
    if Kind.CANCELLED in kinds:
        return LostReason.CANCELLED
    own = [transition for transition in history if transition.token == token]
    if not own or not task:
        ended = any(transition.kind in OWN_ENDINGS for transition in own)
        return LostReason.FINISHED if ended else LostReason.GONE
    return ended_by(own) or expired_by(own, task)


def ended_by(own: Sequence[Transition]) -> LostReason | None:
    """Who ended this delivery: its own worker, an adoption, or nobody (the clock did)."""
    for transition in own:
        failed = transition.kind is Kind.DEAD and "error" in transition.facts
        if transition.kind in OWN_ENDINGS or failed:
            return LostReason.FINISHED
        if "adopted_by" in transition.facts:
            return LostReason.ADOPTED
    return None


def expired_by(own: Sequence[Transition], task: TaskRecord) -> LostReason:
    """Whether the deadline that passed was the last one the lease could have had."""
    deadlines = [t.visible_at for t in own if t.kind in (Kind.LEASED, Kind.HEARTBEAT)]
    leased_at = own[0].at
    return LostReason.CAPPED if deadlines[-1] == leased_at + task.max_lease else LostReason.LAPSED
