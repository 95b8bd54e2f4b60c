"""Every exception the queue raises, and why a lease can be lost.

Exception
├── InvalidTaskError (ValueError)     what was handed in can't be stored; nothing was
├── LeaseLostError                    the lease isn't live; nothing was changed
├── QueueUnavailableError             the database can't be reached; nothing is known to be stored
├── EffectUncertain                   an effect was begun, and nobody knows whether it came off
├── TaskTimeout                       the task ran longer than it may; raised inside the task
├── TaskNotAllowedError               a task's path lies outside; nothing was imported
├── TaskNotFoundError                 a task's path leads to no task
├── TaskFailedError                   ┐
├── TaskCancelledError                ├ never raised: what the errors of a TaskResult are called
├── WorkerVanishedError               ┘
└── IllegalTransitionError            a bug: a move that the rules don't allow
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from .lease import Lease
    from .transitions import Kind, State


class InvalidTaskError(ValueError):
    """A name, a bound, a payload or a result that can't be stored.

    The message names the field or the path inside the payload and the bound, never the value.
    Nothing of the call was stored.
    """


class LostReason(StrEnum):
    """Why a lease isn't live. Where several apply, the first one of this list is given."""

    SUPERSEDED = "superseded"  # the task has a newer token
    CANCELLED = "cancelled"  # an operator took the task away
    FINISHED = "finished"  # this delivery has ended already, by its own worker
    ADOPTED = "adopted"  # the worker's successor of the same name took it back
    CAPPED = "capped"  # the deadline had reached leased_at + max_lease
    LAPSED = "lapsed"  # the deadline passed
    GONE = "gone"  # no record is left


@dataclass(eq=False, repr=False)
class LeaseLostError(Exception):
    """The lease isn't live: whatever the call was to do, nothing was changed.

    Attributes:
        lease: the lease as the caller held it.
        reason: why it isn't live.
    """

    lease: Lease
    reason: LostReason

    def __str__(self) -> str:
        lease = self.lease
        return (
            f"{lease.queue}/{lease.id} attempt {lease.attempt} token {lease.token} "
            f"is {self.reason}; nothing was changed"
        )


class QueueUnavailableError(Exception):
    """The queue's database can't be reached, or didn't answer in time.

    A call that raises this never claims to have worked. Where the answer to a commit was lost the
    task may be stored all the same: enqueueing the same id again is safe.
    """


class TaskTimeout(Exception):
    """The task ran longer than its ``timeout``: its lease is no longer renewed.

    Raised inside the task: at the next ``check`` or ``heartbeat`` of a sync one, at the await it
    stands at in an async one. Let it pass, and the attempt is recorded as a retryable failure.
    """


@dataclass(eq=False, repr=False)
class EffectUncertain(Exception):
    """An earlier delivery began an effect and never said how it ended; it was not repeated.

    The worker may have died before the effect or after it: ask whoever was to be asked. Let it
    pass, and the attempt is recorded as a retryable failure.

    Attributes:
        effect: its name.
        life: the task's.
        token: of the delivery that began it.
        started_at: when, on the database's clock.
    """

    effect: str
    life: UUID
    token: int
    started_at: datetime

    def __str__(self) -> str:
        return (
            f"effect {self.effect!r} of task {self.life} was begun at {self.started_at:%F %T} UTC "
            f"under token {self.token}, and nobody knows whether it happened; it was not repeated"
        )


@dataclass(eq=False, repr=False)
class TaskNotAllowedError(Exception):
    """A task's path lies outside the installed apps and ``task_modules``: it is never imported.

    No retry helps: the task is dead at once, until the settings are changed and it is redriven.
    """

    path: str

    def __str__(self) -> str:
        return (
            f"task {self.path!r} lies outside the installed apps and OPTIONS['task_modules']; "
            "nothing was imported"
        )


@dataclass(eq=False, repr=False)
class TaskNotFoundError(Exception):
    """A task's path doesn't lead to a task: it doesn't import, or what is there is no task."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"no task is found at {self.path!r}: {self.why}"


class TaskFailedError(Exception):
    """An attempt was reported as failed in words, without an exception."""


class TaskCancelledError(Exception):
    """An operator took the task away."""


class WorkerVanishedError(Exception):
    """The worker of an attempt let its lease pass, or was started anew."""


class IllegalTransitionError(Exception):
    """A transition that may not follow the task's state. Never raised by correct stores."""

    def __init__(self, kind: Kind, state: State | None) -> None:
        super().__init__(f"{kind} may not follow {state or 'a task that is not held'}")
