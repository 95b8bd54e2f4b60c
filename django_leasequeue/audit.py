"""Verify that the projection is what the log folds into, and rebuild it where it isn't.

Both walk through log and projection in stretches, each read as of one instant; what is in memory
is bounded by a stretch. Tasks go on moving meanwhile: a stretch is judged as it was at its instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from django.db import transaction

from .drift import Drift, Finding, compare
from .models import Task, TaskTransition
from .stores import tokens
from .stores.base import Store
from .stores.mending import Mending
from .stores.projection import Stretch, snapshot, stretch

STRETCH_ROWS: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What was seen on one stretch.

    ``done`` is how far the walk has come, from 0 to 1; ``lives``, ``rows`` of the log and
    ``tasks`` of the projection count what was read.
    """

    findings: list[Finding]
    done: float = 1.0
    lives: int = 0
    rows: int = 0
    tasks: int = 0


def verify(store: Store, *, size: int = STRETCH_ROWS) -> Iterator[Step]:
    """Look for drift in the queue's tables, beside live traffic; changes nothing.

    Args:
        store: of the database.
        size: rows of log and projection that a stretch holds, at most, and the rest of the lives
            that begin there.
    """
    using, behind = store.using, 0
    # What comes later is the next one's: under load there would be no end of it.
    last = max(table.objects.using(using).newest() for table in (TaskTransition, Task))
    more = True
    while more:
        with snapshot(using):
            part = stretch(using, behind=behind, size=size)
            step = look_at(part, store.now())
        behind = part.upto or last
        more = part.upto is not None and part.upto < last
        yield replace(step, done=min(1.0, behind / last) if more else 1.0)
    if late := tokens.behind(using):
        stands, highest = late
        what = f"the sequence stands at {stands}, and {highest} was given out"
        told = f"{what}: leasequeue advance-tokens"
        yield Step(findings=[Finding(drift=Drift.SEQUENCE, what=told)])


def look_at(part: Stretch, now: datetime) -> Step:
    stored = {task.record.seq: task for task in part.stored()}
    lives, rows, tasks = 0, 0, len(stored)
    found: list[Finding | None] = []
    for story in part.stories():
        lives, rows = lives + 1, rows + story.rows
        found += [story.finding, compare(story, stored.pop(story.seq, None), now)]
    found += [compare(None, left, now) for left in stored.values()]
    findings = [finding for finding in found if finding]
    return Step(lives=lives, rows=rows, tasks=tasks, findings=findings)


def rebuild(store: Store, *, unlogged: bool = False, size: int = STRETCH_ROWS) -> Iterator[Step]:
    """Make the projection what the log folds into, wherever it isn't, beside live workers.

    A stretch without drift costs nobody anything; of the others the rows that differ are locked for
    as long as their stretch takes. What is wrong with the log itself stays: nothing mends history.

    Args:
        store, size: as of ``verify``.
        unlogged: delete also tasks that the log knows nothing of.
    """
    for step in verify(store, size=size):
        mend = partial(mended, store, step.findings, unlogged=unlogged)
        yield replace(step, findings=store.repeated(mend)) if step.findings else step


def mended(store: Store, findings: list[Finding], *, unlogged: bool) -> list[Finding]:
    with transaction.atomic(using=store.using):
        mending = Mending(using=store.using, now=store.now(), unlogged=unlogged)
        return mending.mend(findings)
