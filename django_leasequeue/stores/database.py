"""What is the same on every database that Django knows: its transactions, and what is rare."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Unpack
from uuid import UUID

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from ..models import Task, TaskTransition, died_at
from ..records import All, Paused
from ..transitions import State, TaskRecord, Transition
from ..validation import Why
from . import pauses, tallies
from .base import BATCH, Answer, Store, move

REPEATS_MAX: Final = 200  # each time somebody else got on, so that this ends long before


class DatabaseStore(Store):
    """Tasks in the tables of ``models``."""

    @property
    def tasks(self) -> QuerySet[Task]:
        """Plain: the model's own manager refuses to write."""
        return QuerySet(Task, using=self.using)

    @property
    def transitions(self) -> QuerySet[TaskTransition]:
        return QuerySet(TaskTransition, using=self.using)

    @contextmanager
    def moving(self) -> Iterator[datetime]:
        """What is written inside is one transaction; gives its instant."""
        # The clock is read when the transaction has begun: SQLite may have waited for others.
        with transaction.atomic(using=self.using):
            yield self.now()

    def repeated(self, act: Callable[[], Answer]) -> Answer:
        if not connections[self.using].get_autocommit():
            return act()
        for _ in range(REPEATS_MAX):
            try:
                return act()
            except OperationalError as error:
                if not self.lost_a_conflict(error):
                    raise
        return act()

    @abstractmethod
    def lost_a_conflict(self, error: OperationalError) -> bool:
        """Whether *error* says: rolled back because of others, try again."""

    def on_commit(self, act: Callable[[], None], *, once: bool = True) -> None:
        connection = connections[self.using]
        if connection.in_atomic_block:
            if once and self.is_pending(act):
                return
        elif not connection.get_autocommit():
            return
        transaction.on_commit(act, using=self.using, robust=True)

    def is_pending(self, act: Callable[[], None]) -> bool:
        """Whether an equal act waits: of its savepoints those that can still be rolled back are
        ours, too, so that it dies with us only."""
        return any(hook == act for _, hook, *_ in connections[self.using].run_on_commit)

    def inside_atomic(self) -> bool:
        blocks = connections[self.using].atomic_blocks
        return bool(blocks) and not blocks[-1]._from_testcase  # type: ignore[attr-defined]

    @move
    def pause(self, queue: str, **why: Unpack[Why]) -> bool:
        with self.moving():
            return pauses.pause(self.using, queue, self.now, **why)

    @move
    def resume(self, queue: str, **why: Unpack[Why]) -> bool:
        with self.moving() as now:
            return pauses.resume(self.using, queue, now, **why)

    def pauses(self) -> Mapping[str, Paused]:
        return pauses.pauses(self.using)

    def history(self, lives: Iterable[UUID], *, since: int = 0) -> list[Transition]:
        found = self.transitions.filter(life__in=list(lives), id__gte=since)
        return [row.transition for row in found.order_by("id")]

    def counts(self, queue: str) -> Mapping[str, int]:
        return tallies.counted(self.using, queue, self.now())

    @move
    def tally(self, counts: Mapping[tuple[str, str], int]) -> None:
        tallies.add(self.using, counts)

    def dead(
        self, queue: str, *, tenant: str | All, after: int = 0, limit: int = BATCH
    ) -> list[TaskRecord]:
        held = self.tasks.filter(queue=queue, seq__gt=after).order_by("seq")
        if not isinstance(tenant, All):
            held = held.filter(tenant=tenant)
        # The clock's dead are read first: a task that is written down in between is met twice,
        # which a dictionary forgives, and never missed.
        letters = {task.seq: task.record for task in held.filter(died_at(self.now()))[:limit]}
        letters |= {task.seq: task.record for task in held.filter(state=State.DEAD)[:limit]}
        return [letters[seq] for seq in sorted(letters)][:limit]
