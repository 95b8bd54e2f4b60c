"""The contract of a store: every move of a task, in the order of its life.

A store is the only place that changes a task. Each move is atomic (the log row and the projection
commit together or not at all), happens under the task's row lock, and reads the clock once: the
database's, unless a clock was given. Arguments are validated before they get here; times are
``timedelta``, JSON is text. What the clock has done to a lease counts whether or not it was
written down.

Moves on leases never raise for a lost lease: they answer which tokens they accepted, and
``lost_reason`` says why of the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, Unpack
from uuid import UUID

from django.dispatch import Signal

from .. import signals
from ..admission import admit_like
from ..errors import LostReason
from ..lease import Lease
from ..records import Admitted, All, Depth, EnqueuedTask, Outlook, Part, Paused, RedriveBatch, Slots
from ..transitions import Kind, TaskRecord, Transition, lost_reason
from ..validation import Why

REFUSED: Final = "refused"  # what the tallies call the calls on lost leases
BATCH: Final = 100  # rows a settling or operator's statement touches at a time
Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Mover = TypeVar("Mover", bound="Store")


def move(
    make: Callable[Concatenate[Mover, Given], Answer],
) -> Callable[Concatenate[Mover, Given], Answer]:
    """A method that is one move, made again where the database asks for it."""

    @wraps(make)
    def made(self: Mover, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return self.repeated(partial(make, self, *args, **kwargs))

    return made


class Clock(Protocol):
    """Where the time comes from when it isn't the database: a test's fake clock."""

    def now(self) -> datetime:
        """The present instant, in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    """A lease whose work is done, and its result as JSON text."""

    lease: Lease
    result: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A lease whose attempt failed, and what follows: RETRIED (after *delay*), DEAD or DROPPED.

    ``error`` is a JSON object as text: type, message, traceback, summary (one line).
    """

    lease: Lease
    kind: Kind
    error: str
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Old:
    """What of the log is to be forgotten.

    Args:
        kinds: of ENDED, for whole lives that ended so; of REPEATED, for rows that no fold needs:
            duplicates, and heartbeats that a later one of their lease makes up for.
        age: what is younger stays.
        queues: None: all.
    """

    kinds: Collection[Kind]
    age: timedelta
    queues: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What a batch of pruning did.

    ``upto`` is the log position to go on from, None where somebody else is pruning; ``more`` says
    that there may be more to do at once.
    """

    rows: int
    upto: int | None
    more: bool


SIGNALS: Final[dict[Kind, Signal]] = {
    Kind.RETRIED: signals.task_retried,
    Kind.LAPSED: signals.task_retried,
    Kind.DEAD: signals.task_dead,
    Kind.REDRIVEN: signals.task_redriven,
}


class Wake(Protocol):
    """Tells those who wait for a queue to look: a call tells all, ``here`` those of this process.

    ``told`` is what the statement takes that tells the others.
    """

    @property
    def told(self) -> Mapping[str, Any]: ...

    def __call__(self) -> None: ...

    def here(self) -> None: ...


class Store(ABC):
    """The tasks of one database."""

    def __init__(self, using: str, clock: Clock | None = None) -> None:
        self.using = using
        self.clock = clock

    @abstractmethod
    def now(self) -> datetime:
        """The present instant on the database's clock."""

    @abstractmethod
    def enqueue(
        self, queue: str, tasks: Sequence[Admitted], wake: Wake | None = None
    ) -> list[EnqueuedTask]:
        """Store the tasks that aren't duplicates, all or none, and answer one each, in order.

        A duplicate of a task whose transaction is still open waits for it and looks again.
        Joins the caller's transaction; a duplicate never aborts it.

        Args:
            wake: told once what was stored is committed.
        """

    def enqueue_alike(
        self, queue: str, like: Admitted, payloads: Iterable[str], wake: Wake | None = None
    ) -> Iterator[Part]:
        """Store a task for each of *payloads*, all or none; answer one each, in order, by parts.

        They are stored while the parts are read, up to the last one; where that isn't reached,
        as where *payloads* raises, nothing is.

        Args:
            like: what they have in common; without key, and without an id but that of its life.
            wake: told once what was stored is committed.
        """
        texts = list(payloads)
        stored = self.enqueue(queue, [admit_like(like, text) for text in texts], wake)
        yield Part(tasks=stored, payloads=texts)

    @abstractmethod
    def claim(self, queue: str, *, worker: str, limit: int) -> list[Lease]:
        """Lease up to *limit* visible tasks, in the queue's order; never waits for a row lock.

        None while the queue is paused.
        """

    @abstractmethod
    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        """Move the deadline to min(now + V, leased at + L); None where the lease isn't live.

        Never waits for a row lock: where the row is locked nothing is stored and the lease comes
        back with ``renewed=False``.
        """

    @abstractmethod
    def complete(self, finishes: Sequence[Finish]) -> set[int]:
        """Acknowledge the leases that are live; their tokens come back."""

    @abstractmethod
    def fail(self, failures: Sequence[Failure]) -> set[int]:
        """Record the failures of the leases that are live; their tokens come back."""

    @abstractmethod
    def release(self, leases: Sequence[Lease]) -> set[int]:
        """Give back what never started: ready at its former visible time, attempt not counted."""

    @abstractmethod
    def settle(self, queue: str, *, limit: int = BATCH) -> int:
        """Write down what the clock has done to up to *limit* tasks, oldest due first; how many.

        Steps over rows locked by others. Nothing depends on it being called.
        """

    @abstractmethod
    def adopt(self, queue: str, worker: str) -> list[TaskRecord]:
        """Take back every live lease of *worker*: ready now, or dead where attempts ran out."""

    def redrive(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        tenant: str,
        slots: Slots | None = None,
        **why: Unpack[Why],
    ) -> RedriveBatch:
        """Make dead letters ready again, attempts from 1; the rest is skipped, with the reason.

        Rows locked by others are skipped as busy; a key that a live task holds skips its letter.

        Args:
            ids: BATCH of them at most.
            slots: when the letters that move become visible, in enqueue order; None: now.
        """
        verdicts: dict[str, str | None] = dict.fromkeys(ids, "not held")
        verdicts |= self.redrive_held(queue, tenant, [*verdicts], slots, **why)
        skipped = {id: why for id, why in verdicts.items() if why is not None}
        return RedriveBatch(redriven=len(verdicts) - len(skipped), skipped=skipped)

    @abstractmethod
    def redrive_held(
        self, queue: str, tenant: str, ids: Sequence[str], slots: Slots | None, **why: Unpack[Why]
    ) -> Mapping[str, str | None]:
        """Of those of *ids* that are held: why each stayed; None where it was redriven."""

    @abstractmethod
    def cancel(
        self, queue: str, ids: Sequence[str], *, tenant: str, **why: Unpack[Why]
    ) -> set[str]:
        """Take held tasks away; the ids of those that were held."""

    @abstractmethod
    def pause(self, queue: str, **why: Unpack[Why]) -> bool:
        """Let nothing be claimed; False where that is so already.

        Waits for claims in flight: once this is committed, none of them leases anything.
        """

    @abstractmethod
    def resume(self, queue: str, **why: Unpack[Why]) -> bool:
        """Let tasks be claimed again; False where they may be already."""

    @abstractmethod
    def pauses(self) -> Mapping[str, Paused]:
        """The paused queues of this database."""

    @abstractmethod
    def erase(self, queue: str, life: UUID, **why: Unpack[Why]) -> bool:
        """Blank what a life knew, in log and projection, held or not; False where the queue has no
        such life on record."""

    @abstractmethod
    def find(self, life: UUID) -> TaskRecord | None:
        """The held task as stored; None where it has left or never was."""

    @abstractmethod
    def held(self, queue: str, id: str, tenant: str) -> TaskRecord | None:
        """The held task of that id, as stored."""

    @abstractmethod
    def history(self, lives: Iterable[UUID], *, since: int = 0) -> list[Transition]:
        """The transitions of those lives from log position *since* on, in log order."""

    @abstractmethod
    def dead(
        self, queue: str, *, tenant: str | All, after: int = 0, limit: int = BATCH
    ) -> list[TaskRecord]:
        """A page of dead letters in enqueue order, from behind seq *after*.

        Those dead by the clock alone belong to it; they come as stored: still leased.
        """

    @abstractmethod
    def depth(self, queue: str) -> Depth:
        """How many tasks are visible, scheduled, leased and dead, by the clock."""

    @abstractmethod
    def oldest_visible(self, queue: str) -> timedelta | None:
        """How long the oldest visible task has been visible; None where nothing is."""

    @abstractmethod
    def outlook(self, queue: str) -> Outlook:
        """Whether a claim is worth while now, and how long until more comes due."""

    @abstractmethod
    def counts(self, queue: str) -> Mapping[str, int]:
        """How often what has ever happened on *queue*, by kind, pruned or not; and REFUSED."""

    @abstractmethod
    def tally(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add to the counts of (queue, kind) what no row of the log tells."""

    @abstractmethod
    def prune(self, old: Old, *, behind: int, size: int) -> Pruned:
        """Forget a batch of what is *old*, and count it in the tallies.

        Args:
            behind: log position to go on from.
            size: rows of the log to look at, at most.
        """

    def repeated(self, act: Callable[[], Answer]) -> Answer:
        """Do *act*, again where the server asks for it; inside a transaction the caller has to."""
        return act()

    def lost_reason(self, lease: Lease) -> LostReason | None:
        """Why *lease* isn't live; None where it is. Takes no lock."""
        task, history = (self.find(lease.life), self.history([lease.life], since=lease.token))
        return lost_reason(lease.token, task, history, self.now())

    def announce(self, moves: Iterable[tuple[str, Transition]]) -> None:
        """Send the signals of *moves* (task id, transition) once they are committed."""
        for id, transition in moves:
            if signal := SIGNALS.get(transition.kind):
                self.on_commit(partial(self.send, signal, id, transition), once=False)

    def send(self, signal: Signal, id: str, transition: Transition) -> None:
        signal.send_robust(
            type(self),
            using=self.using,
            queue=transition.queue,
            tenant=transition.tenant,
            id=id,
            life=transition.life,
            attempt=transition.attempt,
            token=transition.token,
            worker=transition.worker,
            error=transition.facts.get("error"),
        )

    @abstractmethod
    def on_commit(self, act: Callable[[], None], *, once: bool = True) -> None:
        """Do *act* once the transaction this call belongs to is committed.

        Without autocommit and without ``atomic`` nobody tells us of the commit: then nothing is
        done, and what was to be told is found by looking.

        Args:
            once: equal acts are done once. What is never equal needs no look at all the others.
        """

    def wake_for(self, stored: Iterable[EnqueuedTask], wake: Wake | None) -> None:
        if wake and not all(task.duplicate for task in stored):
            self.on_commit(wake)

    @abstractmethod
    def inside_atomic(self) -> bool:
        """Whether a caller's own ``atomic`` block is open; a TestCase's doesn't count."""
