"""The queue's face: it validates, asks its store, and tells those who wait.

Methods stand in the order of a task's life; what operators do is in ``operating``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from . import signals, validation
from .admission import admit, admit_all, admit_like, as_new_task, payload_texts
from .aqueue import AsyncQueueMixin, twin
from .conf import options_for
from .errors import InvalidTaskError, LeaseLostError, LostReason
from .failure import error_text, own_wait
from .lease import Lease
from .policy import QueuePolicy, clamped_retry_after, whole
from .records import Admitted, Disposition, EnqueuedTask, NewTask, Part
from .stores import store_for
from .stores.base import Clock, Failure, Finish, Store
from .transitions import Kind, TaskRecord
from .wakeups import Wake

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
        InvalidTaskError: the name can't be stored, or something isn't what it should be.
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
        if not isinstance(using, str | None):
            raise InvalidTaskError("using must be an alias of DATABASES")
        if not (clock is None or hasattr(clock, "now")):
            raise InvalidTaskError("clock must be a clock, such as a FakeClock")
        self.options = options_for(self.name, using)
        self.policy = policy or self.options.policy_of(name)
        self.store = self.open_store(using or self.options.using, clock)
        self.keep_sleepers()

    def open_store(self, using: str, clock: Clock | None) -> Store:
        return store_for(using, clock)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self.using!r}>"

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
        return self.store_all([self.like(new)])[0]

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

    def like(self, new: NewTask | Mapping[str, Any]) -> Admitted:
        """Look at *new* once, for many tasks that differ in their payloads only.

        Raises:
            InvalidTaskError: something can't be stored.
        """
        return admit(as_new_task(new), self.policy, bytes_max=self.options.payload_bytes_max)

    def enqueue_like(self, like: Admitted, payload: Any) -> EnqueuedTask:
        """Store a task as *like*, but for its payload and its id; see ``enqueue``."""
        text = validation.payload_text(payload, bytes_max=self.options.payload_bytes_max)
        return self.store_all([admit_like(an_admitted(like), text)])[0]

    def enqueue_alike(self, like: Admitted, payloads: Iterable[Any]) -> Iterator[Part]:
        """Store a task as *like* for each of *payloads*, all or none; see ``enqueue_like``.

        Args:
            like: without dedupe key.

        Returns:
            The stored tasks, in order, by parts. Nothing is stored unless they are read to the
            end; the connection is in use until then, also while a payload is asked for.

        Raises:
            InvalidTaskError: naming the item's index; nothing was stored.
            QueueUnavailableError: the database can't be reached.
        """
        if an_admitted(like).dedupe_key is not None:
            raise InvalidTaskError("tasks that are alike have no dedupe_key")
        texts = payload_texts(payloads, bytes_max=self.options.payload_bytes_max)
        with self.reached():
            yield from self.around.enqueue_alike(
                self.store, self.name, like, texts, Wake(self.using, self.name)
            )

    def store_all(self, admitted: Sequence[Admitted]) -> list[EnqueuedTask]:
        wake = Wake(self.using, self.name)
        with self.reached():
            stored = self.around.enqueue(self.store, self.name, admitted, wake)
        for task in stored:
            if task.duplicate:
                facts = {"using": self.using, "queue": self.name, "task": task}
                signals.task_duplicate.send_robust(type(self), **facts)
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
            lost = self.refused(lease)
            if self.store.inside_atomic():  # a swallowed error can't commit the block's writes
                transaction.set_rollback(True, using=self.using)
            raise lost

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
            for lease, result in map(a_pair, validation.items("finished", finished))
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

    def release_many(self, leases: Iterable[Lease]) -> list[Lease]:
        """Give back many leases in one go; the refused ones come back."""
        unstarted = list(map(a_lease, validation.items("leases", leases)))
        with self.reached():
            accepted = self.store.release(unstarted)
        if accepted:
            self.wake()
        return [lease for lease in unstarted if lease.token not in accepted]

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

    aenqueue = twin(enqueue)
    aenqueue_many = twin(enqueue_many)
    acheck = twin(check)
    aheartbeat = twin(heartbeat)
    acomplete = twin(complete)
    acomplete_many = twin(complete_many)
    afail = twin(fail)
    arelease = twin(release)
    aadopt = twin(adopt)

    def lost(self, lease: Lease, reason: LostReason) -> LeaseLostError:
        signals.lease_lost.send_robust(type(self), lease=lease, reason=reason)
        return LeaseLostError(lease, reason)

    def refused(self, lease: Lease) -> LeaseLostError:
        """The error for a lease that a move has just refused."""
        with self.reached():
            # A lease that isn't live never becomes live again: None would be a clock set back.
            reason = self.store.lost_reason(lease) or LostReason.LAPSED
        return self.lost(lease, reason)

    def refuse_inside_atomic(self, what: str) -> None:
        if self.store.inside_atomic():
            raise transaction.TransactionManagementError(
                f"{what} can't be used inside atomic(): work starts on a lease that is committed"
            )


def a_lease(value: Any) -> Lease:
    if not isinstance(value, Lease):
        raise InvalidTaskError("lease must be a Lease, as claim and poll answer it")
    return value


def a_pair(value: Any) -> tuple[Any, Any]:
    try:
        lease, result = value
    except (TypeError, ValueError):
        raise InvalidTaskError("finished must hold pairs: a lease and its result") from None
    return lease, result


def an_admitted(value: Any) -> Admitted:
    if not isinstance(value, Admitted):
        raise InvalidTaskError("like must be what Queue.like() answers")
    return value
