"""Every move of a task, written once: look, ask the rules, append.

A move is ``moving`` (one transaction, one look at the clock), some rows locked, and an ``append``
for each thing that happened: the log row, and the task it folds into. A subclass says where rows
are and how they are locked; what may follow what is in ``transitions``. Readable first: PostgreSQL
has a store of its own.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from ..lease import Lease
from ..records import Admitted, EnqueuedTask, Slots, told_as
from ..transitions import (
    Kind,
    State,
    TaskRecord,
    Transition,
    as_of,
    blanked,
    enqueued_data,
    fold,
    follow,
    json_text,
    overdue,
)
from ..validation import Why
from .base import BATCH, Failure, Finish, Store, Wake, move


class FoldingStore(Store):
    """Moves on top of a few ways to find, lock and write rows."""

    @abstractmethod
    def moving(self) -> AbstractContextManager[datetime]:
        """What is written inside is written as a whole or not at all; gives the move's instant."""

    @abstractmethod
    def log(self, transition: Transition) -> Transition:
        """Append to the log; the transition comes back with its position.

        The token of a ``leased`` one is its position.
        """

    @abstractmethod
    def project(self, before: TaskRecord | None, after: TaskRecord | None, now: datetime) -> None:
        """Write *after* in the place of *before*; None is a task that isn't held."""

    @abstractmethod
    def look(self, **match: Any) -> list[TaskRecord]:
        """The held tasks with these attributes, as stored, in enqueue order.

        Args:
            match: attribute and value, or a set of values.
        """

    @abstractmethod
    def lock(self, *, wait: bool = True, **match: Any) -> list[TaskRecord]:
        """As ``look``, locked.

        Args:
            wait: for rows that others have locked; else they are left out.
        """

    @abstractmethod
    def due(self, queue: str, now: datetime, limit: int) -> list[TaskRecord]:
        """Tasks to which the clock did something unwritten, oldest first; locked, never waiting."""

    @abstractmethod
    def head(self, queue: str, tenant: str, now: datetime) -> TaskRecord | None:
        """The tenant's first visible task by priority, time and number; locked, never waiting."""

    @abstractmethod
    def next_tenant(
        self, queue: str, now: datetime, *, after: str | None, last: str | None
    ) -> str | None:
        """The first tenant with a visible task behind *after*, and not behind *last*."""

    @abstractmethod
    def turn(self, queue: str) -> str | None:
        """The tenant that was served last."""

    @abstractmethod
    def take_turn(self, queue: str, tenant: str, token: int) -> None:
        """Remember that *tenant* was served last, by the lease *token*."""

    @abstractmethod
    def may_claim(self, queue: str) -> bool:
        """Whether *queue* isn't paused, and won't be before this move has ended."""

    @abstractmethod
    def rewrite(self, rows: Sequence[Transition]) -> None:
        """Write what an erasure leaves of *rows* in their places, and of their life's effects."""

    def find(self, life: UUID) -> TaskRecord | None:
        return next(iter(self.look(life=life)), None)

    def held(self, queue: str, id: str, tenant: str) -> TaskRecord | None:
        return next(iter(self.look(queue=queue, tenant=tenant, id=id)), None)

    def append(self, task: TaskRecord | None, transition: Transition) -> TaskRecord | None:
        """Log *transition* and write the task it folds into, which comes back."""
        logged = self.log(transition)
        after = fold(task, logged)
        if after is not task:
            self.project(task, after, logged.at)
        if task:
            self.announce([(task.id, logged)])
        return after

    def kept(self, task: TaskRecord | None, transition: Transition) -> TaskRecord:
        """As ``append``, of what leaves the task in the queue."""
        after = self.append(task, transition)
        if after is None:
            raise AssertionError(f"{transition.kind} took the task away")
        return after

    def written_down(self, task: TaskRecord, now: datetime) -> TaskRecord:
        """The locked *task* after what the clock has done to it is in the log."""
        late = overdue(task, now)
        return self.kept(task, late) if late else task

    @move
    def enqueue(
        self, queue: str, tasks: Sequence[Admitted], wake: Wake | None = None
    ) -> list[EnqueuedTask]:
        with self.moving() as now:
            stored = [self.enqueue_one(queue, task, now) for task in tasks]
        self.wake_for(stored, wake)
        return stored

    def enqueue_one(self, queue: str, task: Admitted, now: datetime) -> EnqueuedTask:
        stored = self.holder(queue, task, now)
        duplicate = stored is not None
        if stored:
            self.append(stored, follow(stored, Kind.DUPLICATE, now))
        else:
            stored = self.kept(None, beginning(queue, task, now))
        return told_as(EnqueuedTask, as_of(stored, now), duplicate=duplicate)

    def holder(self, queue: str, task: Admitted, now: datetime) -> TaskRecord | None:
        """The task that holds the new one's id, else the one that holds its key."""
        for held in self.lock_unless_running(now, queue=queue, tenant=task.tenant, id=task.id):
            return self.written_down(held, now)
        return self.key_holder(queue, task.tenant, task.dedupe_key, now)

    def key_holder(
        self, queue: str, tenant: str, key: str | None, now: datetime
    ) -> TaskRecord | None:
        """The live task that holds *key*; one that is dead by the clock is written down as such."""
        if key is None:
            return None
        for held in self.lock_unless_running(now, queue=queue, tenant=tenant, live_key=key):
            settled = self.written_down(held, now)
            return settled if settled.live_key else None
        return None

    def lock_unless_running(self, now: datetime, **match: Any) -> list[TaskRecord]:
        """As ``lock``; a running task may be left unlocked.

        It has begun without what the caller's transaction changes, and may need its heartbeats.
        """
        return self.lock(**match)

    def claim(self, queue: str, *, worker: str, limit: int) -> list[Lease]:
        leases: list[Lease] = []
        while len(leases) < limit:
            more_due = self.settle(queue) == BATCH
            leases += self.take(queue, worker, limit - len(leases))
            if not more_due:
                break
        return leases

    @move
    def take(self, queue: str, worker: str, limit: int) -> list[Lease]:
        """Lease up to *limit* tasks of those that are written down as visible."""
        with self.moving() as now:
            leases: list[Lease] = []
            if not self.may_claim(queue):
                return leases
            for task in self.in_turn(queue, now):
                leases.append(self.lease(task, worker, now))
                if len(leases) == limit:
                    break
            if leases:
                self.take_turn(queue, leases[-1].tenant, leases[-1].token)
            return leases

    def in_turn(self, queue: str, now: datetime) -> Iterator[TaskRecord]:
        """Visible tasks, one of each tenant a lap; each is leased before the next is asked for."""
        place = self.turn(queue)
        served = True
        while served:
            served = False
            for tenant in self.lap(queue, place, now):
                if task := self.head(queue, tenant, now):
                    served = True
                    yield task

    def lap(self, queue: str, place: str | None, now: datetime) -> Iterator[str]:
        """Tenants with visible tasks from behind *place* once around, found as they are needed."""
        stretches = [(place, None)] if place is None else [(place, None), (None, place)]
        for after, last in stretches:
            tenant = self.next_tenant(queue, now, after=after, last=last)
            while tenant is not None:
                yield tenant
                tenant = self.next_tenant(queue, now, after=tenant, last=last)

    def lease(self, task: TaskRecord, worker: str, now: datetime) -> Lease:
        deadline = now + task.visibility
        leased = follow(task, Kind.LEASED, now, worker=worker, visible_at=deadline)
        return lease_on(self.kept(task, leased), task)

    @move
    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        # Asked without a lock first: what isn't live is refused though others hold the row.
        if not live(self.find(lease.life), lease, self.now()):
            return None
        facts = {} if details is None else {"details": json.loads(details)}
        with self.moving() as now:
            for task in self.lock(life=lease.life, wait=False):
                if not live(task, lease, now):
                    return None
                deadline = min(now + task.visibility, lease.leased_at + task.max_lease)
                beat = follow(task, Kind.HEARTBEAT, now, visible_at=deadline, **facts)
                return renewed(lease, self.kept(task, beat), now)
        return lease._replace(renewed=False)

    @move
    def complete(self, finishes: Sequence[Finish]) -> set[int]:
        results = {finish.lease.token: finish.result for finish in finishes}
        with self.moving() as now:
            tasks = self.lock_live([finish.lease for finish in finishes], now)
            for token, task in tasks.items():
                result = json.loads(results[token])
                self.append(task, follow(task, Kind.ACKED, now, result=result))
        return set(tasks)

    @move
    def fail(self, failures: Sequence[Failure]) -> set[int]:
        failed = {failure.lease.token: failure for failure in failures}
        with self.moving() as now:
            tasks = self.lock_live([failure.lease for failure in failures], now)
            for token, task in tasks.items():
                self.append(task, consequence(task, failed[token], now))
        return set(tasks)

    @move
    def release(self, leases: Sequence[Lease]) -> set[int]:
        given = {lease.token: lease for lease in leases}
        with self.moving() as now:
            tasks = self.lock_live(leases, now)
            for token, task in tasks.items():
                self.append(task, self.giving_back(task, given[token], now))
        return set(tasks)

    def giving_back(self, task: TaskRecord, lease: Lease, now: datetime) -> Transition:
        """The leased *task* as it was before: visible since when it was, one attempt fewer."""
        return follow(task, Kind.RELEASED, now, visible_at=lease.visible_since)

    def lock_live(self, leases: Sequence[Lease], now: datetime) -> dict[int, TaskRecord]:
        """The tasks of those of *leases* that are live, locked, by token."""
        tokens = {lease.token for lease in leases}
        return {
            task.token: task
            for task in self.lock(life={lease.life for lease in leases})
            if task.token in tokens and as_of(task, now).state is State.LEASED
        }

    @move
    def settle(self, queue: str, *, limit: int = BATCH) -> int:
        with self.moving() as now:
            tasks = self.due(queue, now, limit)
            for task in tasks:
                if self.written_down(task, now) is task:
                    self.project(task, task, now)  # only its delay is over: that is no event
        return len(tasks)

    @move
    def adopt(self, queue: str, worker: str) -> list[TaskRecord]:
        with self.moving() as now:
            return [
                self.adopt_one(task, worker, now)
                for task in self.lock(queue=queue, worker=worker, state=State.LEASED)
                if as_of(task, now).state is State.LEASED
            ]

    def adopt_one(self, task: TaskRecord, worker: str, now: datetime) -> TaskRecord:
        kind = Kind.DEAD if task.last_attempt else Kind.LAPSED
        return self.kept(task, follow(task, kind, now, visible_at=now, adopted_by=worker))

    @move
    def redrive_held(
        self, queue: str, tenant: str, ids: Sequence[str], slots: Slots | None, **why: Unpack[Why]
    ) -> dict[str, str | None]:
        verdicts: dict[str, str | None] = {}
        with self.moving() as now:
            found = [task for id in ids if (task := self.held(queue, id, tenant))]
            slots = slots and slots.since(now)
            # The oldest first: of letters that share a key it gets the key, on every store.
            for task in sorted(found, key=lambda task: task.seq):
                at = slots.first_at if slots else now
                verdicts[task.id] = self.redrive_one(task, now, at, **why)
                if slots and verdicts[task.id] is None:
                    slots = slots.after(1)
        return verdicts

    def redrive_one(
        self, seen: TaskRecord, now: datetime, visible_at: datetime, **facts: str | None
    ) -> str | None:
        """Make one dead letter ready, or have it wait; why not, where it stays."""
        state = as_of(seen, now).state
        if state is not State.DEAD:
            return f"not dead: {state}"
        for task in self.lock(life=seen.life, state=seen.state, token=seen.token, wait=False):
            letter = self.written_down(task, now)
            if taken := self.key_taken(letter, now):
                return taken
            back = follow(letter, Kind.REDRIVEN, now, visible_at=visible_at, **facts)
            self.append(letter, back)
            return None
        return "busy"

    def key_taken(self, letter: TaskRecord, now: datetime) -> str | None:
        """Why *letter* can't have its key back; never waits for who has it."""
        if letter.dedupe_key is None:
            return None
        key = {"queue": letter.queue, "tenant": letter.tenant, "live_key": letter.dedupe_key}
        for holder in self.look(**key):
            if as_of(holder, now).state is not State.DEAD:
                return f"key {letter.dedupe_key!r} is held by {holder.id}"
            # Dead by the clock alone: once that is written down, it has let go.
            locked = self.lock(life=holder.life, token=holder.token, wait=False)
            if not locked:
                return "busy"
            self.written_down(locked[0], now)
        return None

    @move
    def cancel(
        self, queue: str, ids: Sequence[str], *, tenant: str, **why: Unpack[Why]
    ) -> set[str]:
        with self.moving() as now:
            tasks = self.lock(queue=queue, tenant=tenant, id=set(ids))
            for task in tasks:
                self.append(task, follow(task, Kind.CANCELLED, now, **why))
        return {task.id for task in tasks}

    @move
    def erase(self, queue: str, life: UUID, **why: Unpack[Why]) -> bool:
        with self.moving() as now:
            held = next(iter(self.lock(life=life)), None)
            history = self.history([life])
            if not history or history[0].queue != queue:
                return False
            note = json_text(why)
            done = replace(history[-1], kind=Kind.ERASED, at=now, visible_at=None, data=note)
            self.rewrite([blanked(row) for row in history if row != blanked(row)])
            # A rebuild that had read the log before that may have brought the task back.
            held = held or next(iter(self.lock(life=life)), None)
            self.append(held, replace(done, position=0, id=None, payload=None))
        return True


def live(task: TaskRecord | None, lease: Lease, now: datetime) -> bool:
    """Whether *lease* is the one that *task* is under at *now*."""
    if task is None or task.token != lease.token:
        return False
    return as_of(task, now).state is State.LEASED


def beginning(queue: str, task: Admitted, now: datetime) -> Transition:
    """The first transition of *task*."""
    wait = task.run_after or timedelta(0)
    wanted = now + wait if isinstance(wait, timedelta) else wait
    return Transition(
        kind=Kind.ENQUEUED,
        at=now,
        life=task.life,
        queue=queue,
        tenant=task.tenant,
        visible_at=max(wanted, now),
        id=task.id,
        payload=task.payload,
        data=enqueued_data(task),
    )


def consequence(task: TaskRecord, failure: Failure, now: datetime) -> Transition:
    """What follows from the *failure* of the task's attempt."""
    instants = {Kind.RETRIED: now + failure.delay, Kind.DEAD: now}
    return follow(
        task,
        failure.kind,
        now,
        visible_at=instants.get(failure.kind),
        error=json.loads(failure.error),
    )


def renewed(lease: Lease, task: TaskRecord, now: datetime) -> Lease:
    return lease._replace(
        deadline=task.visible_at,
        seconds_left=(task.visible_at - now).total_seconds(),
        details_text=task.details,
        renewed=True,
    )


def lease_on(task: TaskRecord, before: TaskRecord) -> Lease:
    """The lease that *task* has just been put under; *before* it was ready."""
    if task.token is None or task.worker is None or task.leased_at is None:
        raise AssertionError("a task without a lease")
    return told_as(
        Lease,
        task,
        deadline=task.visible_at,
        seconds_left=(task.visible_at - task.leased_at).total_seconds(),
        visible_since=before.visible_at,
        previous_token=before.token,
        payload_text=task.payload,
        details_text=task.details,
        renewed=True,
    )
