"""Writing the projection's rows anew, as the log folds into them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.models import QuerySet

from ..drift import Drift, Finding, Story
from ..failure import fingerprint
from ..models import Task, TaskTransition, column
from ..transitions import TASK, State, TaskRecord
from .projection import stories

MENDABLE: Final = frozenset({Drift.MISSING, Drift.EXTRA, Drift.DIFFERS})
TAKEN: Final = "not mended: another task holds its id or its key; cancel that one first"
# Its lock is that of erasing, too: see migration 0002. A site's role may lock no rows of the log.
AS_PRUNING_DOES: Final = """
SELECT pg_advisory_xact_lock(
           hashtext('leasequeue_prune'), 'leasequeue_transition'::regclass::oid::integer)
"""
UNLOGGED: Final = "kept: cancel it, or say --delete-unlogged"


@dataclass(frozen=True, kw_only=True)
class Mending:
    """Mends rows of *using* in the caller's transaction.

    Args:
        now: the present instant on the database's clock.
        unlogged: delete also tasks that the log knows nothing of.
    """

    using: str
    now: datetime
    unlogged: bool

    @property
    def rows(self) -> QuerySet[Task]:
        return QuerySet(Task, using=self.using)

    def mend(self, findings: Sequence[Finding]) -> list[Finding]:
        """Make the rows that *findings* are about what the log folds into; what was done of each.

        Who is moving a task meanwhile is waited for, and read; nobody begins to before the commit.
        No move but an erasure begins on a row that is missing.
        """
        lives = {finding.life for finding in findings if finding.life}
        self.exclude_erasures(lives)
        seqs = {finding.seq or 0 for finding in findings if finding.drift in MENDABLE}
        held = self.rows.filter(pk__in=seqs).order_by("pk").select_for_update()
        there = {row.seq for row in held}
        told = {story.life: story for story in stories(self.using, lives, whole=True)}
        tasks = [story.task for story in told.values() if story.task]
        absent = [task for task in tasks if task.seq in seqs and task.seq not in there]
        restored = self.done(partial(self.insert, absent))
        there |= {task.seq for task in absent if restored}
        return [
            self.mend_one(finding, finding.seq, told.get(finding.life), finding.seq in there)
            if finding.drift in MENDABLE and finding.seq and finding.life
            else finding
            for finding in findings
        ]

    def exclude_erasures(self, lives: Collection[UUID]) -> None:
        """Wait for those under way; who erases one of *lives* from here on waits."""
        if connections[self.using].vendor == "postgresql":
            with connections[self.using].cursor() as cursor:
                cursor.execute(AS_PRUNING_DOES)
        else:
            log: QuerySet[TaskTransition] = QuerySet(TaskTransition, using=self.using)
            list(log.filter(life__in=lives).select_for_update().values_list("pk"))

    def mend_one(self, finding: Finding, seq: int, story: Story | None, there: bool) -> Finding:
        if story and not story.legible:
            return finding
        task = story.task if story and story.task and story.seq == seq else None
        if task:
            put = partial(self.update, task) if there else partial(self.insert, [task])
            if not self.done(put):
                return replace(finding, what=f"{finding.what}; {TAKEN}")
            word = "restored" if finding.drift is Drift.MISSING else "rewritten"
            return replace(finding, mended=word)
        if not there:
            return replace(finding, mended="has left")
        if not story and not self.unlogged:
            return replace(finding, what=f"{finding.what}; {UNLOGGED}")
        self.rows.filter(pk=seq).delete()
        return replace(finding, mended="removed")

    def done(self, write: Callable[[], object]) -> bool:
        """Do *write*; whether no other task was in its way. Else nothing is written."""
        try:
            with transaction.atomic(using=self.using):
                write()
        except IntegrityError:
            return False
        return True

    def insert(self, tasks: Sequence[TaskRecord]) -> None:
        self.rows.bulk_create([Task(**row_of(task, self.now)) for task in tasks])

    def update(self, task: TaskRecord) -> None:
        self.rows.filter(pk=task.seq).update(**row_of(task, self.now))


def row_of(task: TaskRecord, now: datetime) -> dict[str, Any]:
    """The columns of the projection's row of *task*."""
    return {column(name): getattr(task, name) for name in TASK} | derived(task, now)


def derived(task: TaskRecord, now: datetime) -> dict[str, Any]:
    """The columns that follow from the others: see the model."""
    common = fingerprint(task.last_error)
    return {"live_key": task.live_key, "fingerprint": common, "lane": lane(task, now)}


def lane(task: TaskRecord, now: datetime) -> str | None:
    if task.state is State.DEAD:
        return None
    return "later" if task.state is State.LEASED or task.visible_at > now else "now"
