"""The values that cross layers: what is handed in, what comes back. Frozen, without behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from .transitions import State

Record = TypeVar("Record")


def told_as(kind: type[Record], source: object, **own: Any) -> Record:
    """A record of that *kind*: its *own* values, and what *source* has by the same names."""
    names = kind.__annotations__.keys() - own.keys()
    return kind(**{name: getattr(source, name) for name in names}, **own)


class All:
    """The type of ``ALL``: every tenant, said explicitly."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All()


class Disposition(StrEnum):
    """What became of a task whose attempt failed."""

    RETRYING = "retrying"
    DEAD_LETTERED = "dead_lettered"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """One task to enqueue; what is None comes from the queue's policy. Times in seconds."""

    payload: Any = field(repr=False)
    id: str | None = None
    tenant: str = ""
    priority: int = 0
    dedupe_key: str | None = None
    run_after: datetime | timedelta | None = None
    max_attempts: int | None = None
    visibility: float | None = None
    max_lease: float | None = None
    path: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A new task after validation: everything resolved, the payload as JSON text."""

    life: UUID
    id: str
    tenant: str
    path: str
    priority: int
    payload: str = field(repr=False)
    dedupe_key: str | None
    run_after: datetime | timedelta | None
    max_attempts: int
    visibility: timedelta
    max_lease: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class EnqueuedTask:
    """The stored task that an enqueue answers with.

    ``duplicate`` says that nothing was added: the id was held, or the dedupe key live, and this
    is the task that holds it; ``state`` then tells waiting from running. Instants are the
    database's.
    """

    life: UUID
    id: str
    tenant: str
    state: State
    enqueued_at: datetime
    visible_at: datetime
    duplicate: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some of many tasks that were stored, in order, and their payloads as JSON text."""

    tasks: Sequence[EnqueuedTask]
    payloads: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Depth:
    """How many tasks a queue holds, by what the clock says of them at this instant."""

    visible: int
    scheduled: int
    leased: int
    dead: int


class Outlook(NamedTuple):
    """Whether anything is to be claimed, or settled by a claim; and how long until more is.

    ``due_in`` is until the next scheduled time or deadline; None: nothing will come due.
    """

    visible: bool
    due_in: timedelta | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """A queue's depth, the age of its oldest visible task, and what happened on it, ever.

    The age is in seconds, None where nothing is visible. The counts never go down: what is pruned
    from the log stays counted. ``refusals`` are calls on lost leases, as workers count them.
    """

    depth: Depth
    oldest_visible_age: float | None
    acks: int
    lapses: int
    deaths: int
    redrives: int
    duplicates: int
    refusals: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One delivery of a task, as the log tells it.

    ``error`` is None where the attempt didn't fail: it is running, it succeeded, or its worker
    vanished (``outcome`` tells which). ``round`` counts from 0 and grows with each redrive.
    """

    round: int
    attempt: int
    token: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A task that stopped: its attempts ran out, or it failed for good."""

    life: UUID
    id: str
    tenant: str
    path: str
    payload: Any = field(repr=False)
    attempts: int
    error: str
    at: datetime
    failures: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """Instants one after the other: the first, and the gap between two."""

    first_at: datetime
    gap: timedelta

    def since(self, moment: datetime) -> Slots:
        """Those from *moment* on: what was missed isn't made up for by a crowd."""
        return replace(self, first_at=max(self.first_at, moment))

    def after(self, taken: int) -> Slots:
        """Those that are left when *taken* of them are."""
        return replace(self, first_at=self.first_at + taken * self.gap)


@dataclass(frozen=True, kw_only=True)
class RedriveBatch:
    """What a redrive moved, and why the rest stayed: ids to reasons.

    ``left``: of a redrive at a rate, the instants for what follows it.
    """

    redriven: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    left: Slots | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused:
    """That nothing is claimed from a queue: since when, by whom, and why."""

    at: datetime
    by: str | None
    reason: str | None
