"""The queue's face: it validates, asks its store, and tells those who wait.

Methods stand in the order of a task's life.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import InterfaceError, InternalError, OperationalError, connections, transaction

from . import signals, validation
from .admission import admit, admit_all
from .aqueue import AsyncQueueMixin, twin
from .conf import options_for
from .errors import InvalidTaskError, LeaseLostError, LostReason, QueueUnavailableError
from .failure import error_text, own_wait
from .lease import Lease
from .policy import QueuePolicy, clamped_retry_after, gap_of, whole
from .records import (
    ALL,
    Admitted,
    All,
    DeadLetter,
    Depth,
    Disposition,
    EnqueuedTask,
    NewTask,
    Paused,
    RedriveBatch,
    Slots,
    Stats,
)
from .stores import store_for
from .stores.base import BATCH, REFUSED, Clock, Failure, Finish, Store
from .stores.mysql import UNAVAILABLE, number
from .story import dead_letter
from .transitions import Kind, TaskRecord
from .wakeups import Wake

READ_ONLY: Final = "25006"  # what a server answers that was the primary before a fail-over
DISPOSITIONS: Final = {
    Kind.RETRIED: Disposition.RETRYING,
    Kind.DEAD: Disposition.DEAD_LETTERED,
    Kind.DROPPED: Disposition.DROPPED,
}


class Queue(AsyncQueueMixin):
    """One named queue in one database.

    Args:
        name: 1 to 100 characters, compared byte for byte.
        using: alias of the database; None: as TASKS says, else ``default``.
        policy: limits; None: as TASKS says, else the defaults.
        clock: where the time comes from; None: the database. Tests give a FakeClock.

    Raises:
        InvalidTaskError: the name can't be stored.
        django.core.exceptions.ImproperlyConfigured: TASKS can't be understood, or has the queue in
            more than one database, and *using* doesn't say in which.
    """

    def __init__(
        self,
        name: str,
        *,
        using: str | None = None,
        policy: QueuePolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = validation.name("queue", name)
        if not isinstance(policy, QueuePolicy | None):
            raise InvalidTaskError("policy must be a QueuePolicy")
        self.options = options_for(self.name, using)
        self.policy = policy or self.options.policy_of(name)
        self.store = self.open_store(using or self.options.using, clock)
        self.keep_sleepers()

    def open_store(self, using: str, clock: Clock | None) -> Store:
        return store_for(using, clock)

    @property
    def using(self) -> str:
        """Alias of the queue's database."""
        return self.store.using

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self.using!r}>"

    def now(self) -> datetime:
        """The present instant on the database's clock, in UTC."""
        with self.reached():
            return self.store.now()

    def enqueue(
        self,
        payload: Any,
        *,
        id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        dedupe_key: str | None = None,
        run_after: datetime | timedelta | None = None,
        max_attempts: int | None = None,
        visibility: float | None = None,
        max_lease: float | None = None,
        path: str = "",
    ) -> EnqueuedTask:
        """Store one task, in the caller's transaction where there is one.

        Args:
            payload: JSON, at most ``payload_bytes_max`` bytes.
            id: unique among the held tasks of (queue, tenant); None: the life's UUID.
            tenant: whose task it is; tenants take turns.
            priority: -100 to 100, higher first, inside one tenant.
            dedupe_key: at most one live task of (queue, tenant) has it.
            run_after: not before this instant, or this long from now.
            max_attempts, visibility, max_lease: this task's own limits; times in seconds.
            path: dotted path of the task function, for those who run it.

        Returns:
            The stored task; where the id was held or the key live, the one that holds it, with
            ``duplicate`` set: nothing was added then, this payload is not delivered.

        Raises:
            InvalidTaskError: something can't be stored; nothing was.
            QueueUnavailableError: the database can't be reached.
        """
        new = NewTask(
            payload=payload,
            id=id,
            tenant=tenant,
            priority=priority,
            dedupe_key=dedupe_key,
            run_after=run_after,
            max_attempts=max_attempts,
            visibility=visibility,
            max_lease=max_lease,
            path=path,
        )
        admitted = admit(new, self.policy, bytes_max=self.options.payload_bytes_max)
        return self.store_all([admitted])[0]

    def enqueue_many(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> list[EnqueuedTask]:
        """Store many tasks, all or none, and answer one each, in order; see ``enqueue``.

        Args:
            tasks: NewTask, or mappings with the same names.

        Raises:
            InvalidTaskError: naming the item's index; nothing was stored.
            QueueUnavailableError: the database can't be reached.
        """
        admitted = admit_all(tasks, self.policy, bytes_max=self.options.payload_bytes_max)
        return self.store_all(admitted) if admitted else []

    def store_all(self, admitted: Sequence[Admitted]) -> list[EnqueuedTask]:
        with self.reached():
            stored = self.store.enqueue(self.name, admitted)
        duplicates = [task for task in stored if task.duplicate]
        for task in duplicates:
            facts = {"using": self.using, "queue": self.name, "task": task}
            signals.task_duplicate.send_robust(type(self), **facts)
        if len(duplicates) < len(stored):
            self.wake()
        return stored

    def claim(self, *, worker: str, limit: int = 1) -> list[Lease]:
        """Lease up to *limit* visible tasks, in order, without waiting; none while paused.

        Raises:
            InvalidTaskError: the worker's name can't be stored, or *limit* is below 1.
            QueueUnavailableError: the database can't be reached.
            django.db.transaction.TransactionManagementError: inside an ``atomic`` block.
        """
        worker = validation.name("worker", worker)
        whole("limit", limit, 1, 10_000)
        self.refuse_inside_atomic("claim")
        with self.reached():
            return self.store.claim(self.name, worker=worker, limit=limit)

    def check(self, lease: Lease) -> None:
        """Ask whether *lease* is live; takes no lock.

        Raises:
            LeaseLostError: it isn't.
            QueueUnavailableError: the database can't be reached.
        """
        with self.reached():
            reason = self.store.lost_reason(a_lease(lease))
        if reason:
            raise self.lost(lease, reason)

    def heartbeat(self, lease: Lease, *, details: Any = None) -> Lease:
        """Move the deadline to now + visibility, but never past leased_at + max_lease.

        Args:
            lease: as poll, claim or the last heartbeat returned it.
            details: JSON, at most 64 KiB; the next attempt finds it in ``lease.details``.

        Returns:
            The lease with its new deadline. ``renewed`` is False where the task's row is locked
            (its own transaction may hold it): the deadline stays, *details* aren't stored.

        Raises:
            LeaseLostError: the lease isn't live; nothing was changed.
            InvalidTaskError: *details* can't be stored; the lease stays as it was.
            QueueUnavailableError: the database can't be reached.
        """
        text = None if details is None else validation.details_text(details)
        with self.reached():
            renewed = self.store.heartbeat(a_lease(lease), text)
        if renewed is None:
            raise self.refused(lease)
        return renewed

    def complete(self, lease: Lease, *, result: Any = None) -> None:
        """Acknowledge: the task leaves the queue, its result is on record.

        Inside ``transaction.atomic()`` the acknowledgement commits with the block; where the
        lease is lost the block is marked for rollback before this raises.

        Args:
            result: JSON; what can't be stored is replaced by a marked note.

        Raises:
            LeaseLostError: the lease isn't live; nothing was changed.
            QueueUnavailableError: the database can't be reached.
        """
        if self.complete_many([(lease, result)]):
            raise self.lost_in_atomic(lease)

    def complete_many(self, finished: Iterable[tuple[Lease, Any]]) -> list[Lease]:
        """Acknowledge many leases in one go; the refused ones come back.

        Args:
            finished: (lease, result) each.

        Raises:
            QueueUnavailableError: the database can't be reached.
        """
        size = self.options.payload_bytes_max
        finishes = [
            Finish(lease=a_lease(lease), result=validation.result_text(result, bytes_max=size))
            for lease, result in finished
        ]
        with self.reached():
            accepted = self.store.complete(finishes)
        return [finish.lease for finish in finishes if finish.lease.token not in accepted]

    def fail(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        retryable: bool = True,
        retry_after: float | None = None,
    ) -> Disposition:
        """This attempt went wrong.

        Args:
            error: kept with the attempt; its ``retry_after`` counts where none is given.
            retryable: False: the task failed for good.
            retry_after: seconds until the next attempt; None: the queue's backoff. Negative, NaN
                or more than a year is clamped and noted.

        Returns:
            What became of the task.

        Raises:
            LeaseLostError: the lease isn't live; nothing was changed.
            QueueUnavailableError: the database can't be reached.
        """
        failure = self.failure(a_lease(lease), error, retryable=retryable, retry_after=retry_after)
        with self.reached():
            accepted = self.store.fail([failure])
        if not accepted:
            raise self.refused(lease)
        if failure.kind is Kind.RETRIED:
            self.wake()
        return DISPOSITIONS[failure.kind]

    def failure(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        retryable: bool,
        retry_after: float | None,
    ) -> Failure:
        """What the rules make of a failed attempt."""
        if not retryable and self.policy.on_fatal == "drop":
            return Failure(lease=lease, kind=Kind.DROPPED, error=error_text(error))
        if not retryable or lease.last_attempt:
            return Failure(lease=lease, kind=Kind.DEAD, error=error_text(error))
        asked = own_wait(error) if retry_after is None else retry_after
        delay = self.policy.delay(lease.attempt) if asked is None else clamped_retry_after(asked)
        kept = asked is None or (isinstance(asked, int | float) and asked == delay)
        note = "" if kept else "retry_after was out of bounds and was clamped"
        return Failure(
            lease=lease,
            kind=Kind.RETRIED,
            error=error_text(error, note=note),
            delay=timedelta(seconds=delay),
        )

    def release(self, lease: Lease) -> None:
        """Give back a lease whose handler never started; the attempt isn't counted.

        Raises:
            LeaseLostError: the lease isn't live; nothing was changed.
            QueueUnavailableError: the database can't be reached.
        """
        if self.release_many([lease]):
            raise self.refused(lease)

    def release_many(self, leases: Sequence[Lease]) -> list[Lease]:
        """Give back many leases in one go; the refused ones come back."""
        with self.reached():
            accepted = self.store.release([a_lease(lease) for lease in leases])
        if accepted:
            self.wake()
        return [lease for lease in leases if lease.token not in accepted]

    def adopt(self, *, worker: str) -> list[TaskRecord]:
        """Take back every live lease of *worker*: the attempts count, the tasks are ready now.

        For configured worker names only: whoever calls this says that no such worker is alive.

        Returns:
            The tasks given back; those whose attempts ran out are dead.

        Raises:
            InvalidTaskError: the worker's name can't be stored.
            QueueUnavailableError: the database can't be reached.
            django.db.transaction.TransactionManagementError: inside an ``atomic`` block.
        """
        worker = validation.name("worker", worker)
        self.refuse_inside_atomic("adopt")
        with self.reached():
            adopted = self.store.adopt(self.name, worker)
        if adopted:
            self.wake()
        return adopted

    def dead_letters(self, *, tenant: str | All = ALL) -> Iterator[DeadLetter]:
        """The dead letters in enqueue order, page by page, so that any number fits in memory.

        Raises:
            InvalidTaskError: *tenant* is no name; raised by the call.
            QueueUnavailableError: the database can't be reached; raised by the iterator.
        """
        return self.letters(whose(tenant))

    def letters(self, tenant: str | All) -> Iterator[DeadLetter]:
        after = 0
        while True:
            with self.reached():
                page = self.store.dead(self.name, tenant=tenant, after=after)
                history = self.store.history([task.life for task in page])
                now = self.store.now()
            for task in page:
                own = [transition for transition in history if transition.life == task.life]
                yield dead_letter(task, own, now)
            if len(page) < BATCH:
                return
            after = page[-1].seq

    def redrive(
        self,
        ids: Iterable[str],
        *,
        tenant: str = "",
        by: str | None = None,
        reason: str | None = None,
        rate: float | None = None,
    ) -> RedriveBatch:
        """Make dead letters ready again, attempts from 1, payload and details kept.

        Args:
            ids: which; none moves nothing.
            by, reason: who and why, for the record; at most 200 and 1000 characters.
            rate: tasks per second, 0.001 to 1,000,000: the first is ready now, the others are
                scheduled one after the other; None: all are ready now.

        Returns:
            How many moved, and why each of the others didn't.

        Raises:
            InvalidTaskError: a name, *by*, *reason* or *rate* can't be meant; nothing was moved.
            QueueUnavailableError: the database can't be reached.
        """
        return self.redrive_into(self.slots(rate), ids, tenant=tenant, by=by, reason=reason)

    def slots(self, rate: float | None) -> Slots | None:
        """The instants from now on at which tasks become visible at *rate*; None: all now."""
        if rate is None:
            return None
        return Slots(first_at=self.now(), gap=gap_of(rate))

    def redrive_into(
        self,
        slots: Slots | None,
        ids: Iterable[str],
        *,
        tenant: str,
        by: str | None,
        reason: str | None,
    ) -> RedriveBatch:
        """See ``redrive``; what moves becomes visible at those instants."""
        wanted = list(dict.fromkeys(names(ids)))
        tenant = validation.name("tenant", tenant, empty=True)
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        redriven = 0
        skipped: dict[str, str] = {}
        for start in range(0, len(wanted), BATCH):
            with self.reached():
                batch = self.store.redrive(
                    self.name,
                    wanted[start : start + BATCH],
                    tenant=tenant,
                    by=by,
                    reason=reason,
                    slots=slots,
                )
            # It began by now at the latest: so what follows comes after the last of it.
            slots = slots and slots.since(self.now()).after(batch.redriven)
            redriven += batch.redriven
            skipped.update(batch.skipped)
        if redriven:
            self.wake()
        return RedriveBatch(redriven=redriven, skipped=skipped, left=slots)

    def redrive_all(
        self,
        *,
        tenant: str | All = ALL,
        by: str | None = None,
        reason: str | None = None,
        rate: float | None = None,
    ) -> RedriveBatch:
        """Make every dead letter ready again that is dead now; see ``redrive``.

        Over all tenants the skipped are named ``tenant/id``: two may have the same id.
        """
        tenant = whose(tenant)
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        slots = self.slots(rate)
        after = redriven = 0
        skipped: dict[str, str] = {}
        while True:
            with self.reached():
                page = self.store.dead(self.name, tenant=tenant, after=after)
            for owner in sorted({task.tenant for task in page}):
                ids = [task.id for task in page if task.tenant == owner]
                batch = self.redrive_into(slots, ids, tenant=owner, by=by, reason=reason)
                slots = batch.left
                redriven += batch.redriven
                owned = f"{owner}/" if owner and isinstance(tenant, All) else ""
                skipped.update({f"{owned}{id}": why for id, why in batch.skipped.items()})
            if len(page) < BATCH:
                return RedriveBatch(redriven=redriven, skipped=skipped, left=slots)
            after = page[-1].seq

    def cancel(
        self,
        id: str,
        *,
        tenant: str = "",
        by: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Take a held task away, on record; a running worker's next call is refused.

        Returns:
            False where no task of that id is held.

        Raises:
            InvalidTaskError: a name, *by* or *reason* can't be stored; nothing was cancelled.
            QueueUnavailableError: the database can't be reached.
        """
        return bool(self.cancel_many([id], tenant=tenant, by=by, reason=reason))

    def cancel_many(
        self,
        ids: Iterable[str],
        *,
        tenant: str = "",
        by: str | None = None,
        reason: str | None = None,
    ) -> set[str]:
        """Take held tasks away in one go, as ``cancel`` does; the ids of those that were held."""
        wanted = names(ids)
        tenant = validation.name("tenant", tenant, empty=True)
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        with self.reached():
            return self.store.cancel(self.name, wanted, tenant=tenant, by=by, reason=reason)

    def pause(self, *, by: str | None = None, reason: str | None = None) -> bool:
        """Let nothing be claimed until ``resume``; enqueueing, and what runs already, go on.

        Once this has returned, no claim leases anything, not even one that had begun; inside
        ``atomic`` once that is committed, and claims from all queues wait for it.

        Args:
            by, reason: who and why, for the record; at most 200 and 1000 characters.

        Returns:
            False where the queue is paused already: its record stays as it was.

        Raises:
            InvalidTaskError: *by* or *reason* can't be stored; the queue isn't paused.
            QueueUnavailableError: the database can't be reached.
        """
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        with self.reached():
            return self.store.pause(self.name, by=by, reason=reason)

    def resume(self, *, by: str | None = None, reason: str | None = None) -> bool:
        """Let tasks be claimed again, and wake who waits for them; see ``pause``.

        Returns:
            False where the queue isn't paused.
        """
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        with self.reached():
            resumed = self.store.resume(self.name, by=by, reason=reason)
        if resumed:
            self.store.on_commit(Wake(self.using, self.name, all=True))
        return resumed

    def paused(self) -> Paused | None:
        """Since when the queue is paused, by whom and why; None where it isn't."""
        with self.reached():
            return self.store.pauses().get(self.name)

    def erase(self, life: UUID | str, *, by: str | None = None, reason: str | None = None) -> bool:
        """Blank payload, details, results and errors of one life, in the log too, on record.

        Whether it is held or has left. The id, the dedupe key and the tenant stay. A task that
        still waits is delivered with the payload ``None`` then, and a worker that runs it still
        knows what it was told: cancel it first.

        Args:
            life: as ``EnqueuedTask.life``, or ``TaskResult.id``.
            by, reason: who and why, for the record.

        Returns:
            False where this queue has no such life on record.

        Raises:
            InvalidTaskError: *by* or *reason* can't be stored; nothing was erased.
            QueueUnavailableError: the database can't be reached.
        """
        by, reason = validation.remark("by", by), validation.remark("reason", reason)
        known = validation.as_life(life)
        with self.reached():
            return known is not None and self.store.erase(self.name, known, by=by, reason=reason)

    def depth(self) -> Depth:
        """How many tasks are visible, scheduled, leased and dead at this instant."""
        with self.reached():
            return self.store.depth(self.name)

    def stats(self) -> Stats:
        """The depth, the age of the oldest visible task, and how often what has happened.

        Counts the log, all of it: about 0.3 seconds per million rows. ``depth`` doesn't.
        """
        with self.reached():
            age = self.store.oldest_visible(self.name)
            depth = self.store.depth(self.name)
            counts = self.store.counts(self.name)
        return Stats(
            depth=depth,
            oldest_visible_age=None if age is None else age.total_seconds(),
            acks=counts.get(Kind.ACKED, 0),
            lapses=counts.get(Kind.LAPSED, 0),
            deaths=counts.get(Kind.DEAD, 0),
            redrives=counts.get(Kind.REDRIVEN, 0),
            duplicates=counts.get(Kind.DUPLICATE, 0),
            refusals=counts.get(REFUSED, 0),
        )

    aenqueue = twin(enqueue)
    aenqueue_many = twin(enqueue_many)
    acheck = twin(check)
    aheartbeat = twin(heartbeat)
    acomplete = twin(complete)
    acomplete_many = twin(complete_many)
    afail = twin(fail)
    arelease = twin(release)
    aadopt = twin(adopt)
    aredrive = twin(redrive)
    aredrive_all = twin(redrive_all)
    acancel = twin(cancel)
    acancel_many = twin(cancel_many)
    apause = twin(pause)
    aresume = twin(resume)
    apaused = twin(paused)
    aerase = twin(erase)
    adepth = twin(depth)
    astats = twin(stats)

    def wake(self) -> None:
        """Tell sleeping workers once this transaction is committed; told once for many calls."""
        self.store.on_commit(Wake(self.using, self.name))

    def lost(self, lease: Lease, reason: LostReason) -> LeaseLostError:
        signals.lease_lost.send_robust(type(self), lease=lease, reason=reason)
        return LeaseLostError(lease, reason)

    def refused(self, lease: Lease) -> LeaseLostError:
        """The error for a lease that a move has just refused."""
        with self.reached():
            # A lease that isn't live never becomes live again: None would be a clock set back.
            reason = self.store.lost_reason(lease) or LostReason.LAPSED
        return self.lost(lease, reason)

    def lost_in_atomic(self, lease: Lease) -> LeaseLostError:
        """As ``refused``; a swallowed error can't commit the block's writes."""
        error = self.refused(lease)
        if self.store.inside_atomic():
            transaction.set_rollback(True, using=self.using)
        return error

    def refuse_inside_atomic(self, what: str) -> None:
        if self.store.inside_atomic():
            raise transaction.TransactionManagementError(
                f"{what} can't be used inside atomic(): work starts on a lease that is committed"
            )

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn the driver's words for "not to be had" into QueueUnavailableError."""
        try:
            yield
        except (OperationalError, InterfaceError, InternalError) as error:
            connection = connections[self.using]
            if not unavailable(error, connection.vendor):
                raise
            if not connection.in_atomic_block:
                if isinstance(error, InternalError):
                    connection.close()  # usable, but to the server that was the primary
                connection.close_if_unusable_or_obsolete()
            raise QueueUnavailableError(
                f"the queue's database {self.using!r} can't be reached: {error}"
            ) from error


def a_lease(value: Any) -> Lease:
    if not isinstance(value, Lease):
        raise InvalidTaskError("lease must be a Lease, as claim and poll answer it")
    return value


def whose(tenant: str | All) -> str | All:
    return tenant if isinstance(tenant, All) else validation.name("tenant", tenant, empty=True)


def names(ids: Iterable[str]) -> list[str]:
    """*ids*; a lone string would be taken for a list of its letters."""
    if isinstance(ids, str):
        raise InvalidTaskError("ids must be a list of ids, not one string")
    return [validation.name("id", id) for id in ids]


def unavailable(error: Exception, vendor: str) -> bool:
    """Whether *error* is about reaching the database, not about a conflict or the statement."""
    cause = error.__cause__
    if vendor == "mysql":
        return isinstance(error, InterfaceError) or number(error) in UNAVAILABLE
    if isinstance(error, InternalError):
        return getattr(cause, "sqlstate", None) == READ_ONLY
    conflict = (getattr(cause, "sqlstate", None) or "").startswith("40")
    statement = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return not conflict and not statement
