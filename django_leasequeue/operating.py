"""What operators do to a queue, and what they see of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from . import validation
from .around import Around
from .errors import InvalidTaskError
from .policy import gap_of
from .polling import PollMixin
from .records import ALL, All, DeadLetter, Depth, Paused, RedriveBatch, Slots, Stats
from .stores.base import BATCH, REFUSED
from .stores.drivers import Reached
from .story import dead_letter
from .transitions import Kind, TaskRecord, Transition
from .wakeups import Wake


class OperatorMixin(PollMixin):
    """The calls that need no lease; they stand in the order of a task's life."""

    around: ClassVar[Around] = Around()

    @property
    def using(self) -> str:
        """Alias of the queue's database."""
        return self.store.using

    def now(self) -> datetime:
        """The present instant on the database's clock, in UTC."""
        with self.reached():
            return self.store.now()

    def reached(self) -> AbstractContextManager[None]:
        return Reached(self.using)

    def wake(self, *, all: bool = False) -> None:
        """Tell sleeping workers once this transaction is committed; told once for many calls.

        Args:
            all: also those who know that the queue is paused.
        """
        self.store.on_commit(Wake(self.using, self.name, all=all))

    def dead_letters(self, *, tenant: str | All = ALL) -> Iterator[DeadLetter]:
        """The dead letters in enqueue order, page by page, so that any number fits in memory.

        Raises:
            InvalidTaskError: *tenant* is no name; raised by the call.
            QueueUnavailableError: the database can't be reached; raised by the iterator.
        """
        return self.letters(whose(tenant))

    def letters(self, tenant: str | All) -> Iterator[DeadLetter]:
        for page in self.pages(tenant):
            told: dict[UUID, list[Transition]] = defaultdict(list)
            with self.reached():
                now = self.store.now()
                for transition in self.store.history([task.life for task in page]):
                    told[transition.life].append(transition)
            yield from (dead_letter(task, told[task.life], now) for task in page)

    def pages(self, tenant: str | All) -> Iterator[list[TaskRecord]]:
        """The dead letters as stored."""
        after, full = 0, True
        while full:
            with self.reached():
                page = self.store.dead(self.name, tenant=tenant, after=after)
            yield page
            full = len(page) == BATCH
            after = page[-1].seq if page else after

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
        return None if rate is None else Slots(first_at=self.now(), gap=gap_of(rate))

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
        remarks = validation.remarks(by, reason)
        redriven = 0
        skipped: dict[str, str] = {}
        for start in range(0, len(wanted), BATCH):
            some = wanted[start : start + BATCH]
            with self.reached():
                batch = self.around.redrive(
                    self.store, self.name, some, tenant=tenant, slots=slots, **remarks
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
        remarks = validation.remarks(by, reason)
        redriven, slots = 0, self.slots(rate)
        skipped: dict[str, str] = {}
        for page in self.pages(tenant):
            for owner in sorted({task.tenant for task in page}):
                ids = [task.id for task in page if task.tenant == owner]
                batch = self.redrive_into(slots, ids, tenant=owner, **remarks)
                slots = batch.left
                redriven += batch.redriven
                owned = f"{owner}/" if owner and isinstance(tenant, All) else ""
                skipped.update({f"{owned}{id}": why for id, why in batch.skipped.items()})
        return RedriveBatch(redriven=redriven, skipped=skipped, left=slots)

    def cancel(
        self, id: str, *, tenant: str = "", by: str | None = None, reason: str | None = None
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
        wanted, remarks = names(ids), validation.remarks(by, reason)
        tenant = validation.name("tenant", tenant, empty=True)
        with self.reached():
            return self.store.cancel(self.name, wanted, tenant=tenant, **remarks)

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
        remarks = validation.remarks(by, reason)
        with self.reached():
            return self.store.pause(self.name, **remarks)

    def resume(self, *, by: str | None = None, reason: str | None = None) -> bool:
        """Let tasks be claimed again, and wake who waits for them; see ``pause``.

        Returns:
            False where the queue isn't paused.
        """
        remarks = validation.remarks(by, reason)
        with self.reached():
            resumed = self.store.resume(self.name, **remarks)
        if resumed:
            self.wake(all=True)
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
        known, remarks = validation.as_life(life), validation.remarks(by, reason)
        with self.reached():
            return known is not None and self.store.erase(self.name, known, **remarks)

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


def whose(tenant: str | All) -> str | All:
    return tenant if isinstance(tenant, All) else validation.name("tenant", tenant, empty=True)


def names(ids: Iterable[str]) -> list[str]:
    """*ids*; a lone string would be taken for a list of its letters."""
    if isinstance(ids, str):
        raise InvalidTaskError("ids must be a list of ids, not one string")
    return [validation.name("id", id) for id in validation.items("ids", ids)]
