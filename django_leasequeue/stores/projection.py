"""The projection beside the log, stretch by stretch, as of one instant.

A stretch is a range of log positions. It holds the tasks of those numbers, and the lives whose
first row lies in it, with all that happened to them since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Case, F, OuterRef, Q, QuerySet, Subquery, TextField, When
from django.db.models.functions import MD5, Length
from django.db.models.lookups import GreaterThan

from ..drift import StoredTask, Story, read
from ..models import Task, TaskTransition, column
from ..transitions import TASK, TRANSITION, Kind, State, TaskRecord, Transition

PAGE_ROWS: Final = 2000  # of the log, in memory at a time
LONG_CHARACTERS: Final = 64  # a longer payload is compared by its digest
# The text of a payload, or its digest where that is shorter.
BRIEF: Final = Case(
    When(GreaterThan(Length("payload"), LONG_CHARACTERS), then=MD5("payload")),
    default=F("payload"),
    output_field=TextField(),
)
AS_OF_ONE_INSTANT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
KINDS: Final = {str(kind): kind for kind in Kind}  # a wrong word stays as it is, to be named
STATES: Final = {str(state): state for state in State}


@contextmanager
def snapshot(using: str) -> Iterator[None]:
    """See to it that what is read inside is of one instant; nobody is kept waiting.

    Inside a caller's transaction it is that transaction's matter.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "sqlite":
        # By hand: Django's own would begin by taking the one writer's place.
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    elif connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute(AS_OF_ONE_INSTANT)  # of the next transaction
        with transaction.atomic(using=using):
            yield
    else:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            cursor.execute(AS_OF_ONE_INSTANT)
            yield


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """The positions behind *behind* up to *upto*, the last one; None: all the rest."""

    using: str
    behind: int
    upto: int | None

    @property
    def within(self) -> Q:
        behind = Q(pk__gt=self.behind)
        return behind if self.upto is None else behind & Q(pk__lte=self.upto)

    def stories(self) -> Iterator[Story]:
        """What the log tells of the lives that begin here."""
        log: QuerySet[TaskTransition] = QuerySet(TaskTransition, using=self.using)
        first = log.filter(life=OuterRef("life")).order_by("life", "id").values("pk")[:1]
        begun = log.filter(self.within, pk=Subquery(first))
        return stories(self.using, begun.values_list("life", flat=True))

    def stored(self) -> Iterator[StoredTask]:
        """The projection's rows."""
        tasks: QuerySet[Task] = QuerySet(Task, using=self.using)
        rows = tasks.filter(self.within).annotate(brief=BRIEF).order_by("seq")
        names = [column(name) for name in TASK]
        names[TASK.index("payload")] = "brief"
        for *record, live_key, lane in rows.values_list(*names, "live_key", "lane"):
            yield StoredTask(record=recorded(record), live_key=live_key, lane=lane)


def stretch(using: str, *, behind: int, size: int) -> Stretch:
    """What comes behind *behind*: *size* rows of the log or tasks, whichever come first."""
    ends: list[int] = []
    for table in (TaskTransition, Task):
        rows: QuerySet[Any] = QuerySet(table, using=using).filter(pk__gt=behind).order_by("pk")
        ends += rows.values_list("pk", flat=True)[size - 1 : size]
    return Stretch(using=using, behind=behind, upto=min(ends, default=None))


def stories(using: str, lives: Iterable[UUID], *, whole: bool = False) -> Iterator[Story]:
    """What the log tells of each of *lives*; of one that it doesn't know, nothing.

    Args:
        whole: with payloads as they are; else long ones are their digests.
    """
    for _, history in groupby(transitions(using, list(lives), whole), attrgetter("life")):
        yield read(history)


def transitions(using: str, lives: Sequence[UUID], whole: bool) -> Iterator[Transition]:
    """The rows of *lives*, life by life, page by page: a life may be long.

    Without results: no fold reads them.
    """
    names = [column(name) for name in TRANSITION]
    names[TRANSITION.index("data")] = "told"
    if not whole:
        names[TRANSITION.index("payload")] = "brief"
    told = Case(When(kind=Kind.ACKED, then=None), default=F("data"), output_field=TextField())
    rows = QuerySet(TaskTransition, using=using).annotate(brief=BRIEF, told=told)
    rows = rows.filter(life__in=lives).order_by("life", "id")
    rest: Q | None = Q()
    while lives and rest is not None:
        page = rows.filter(rest).values_list(*names)[:PAGE_ROWS]
        rest = None
        for count, values in enumerate(page, start=1):
            row = dict(zip(TRANSITION, values, strict=True))
            yield (one := Transition(**row | {"kind": KINDS.get(row["kind"], row["kind"])}))
            if count == PAGE_ROWS:
                rest = Q(life=one.life, id__gt=one.position) | Q(life__gt=one.life)


def recorded(values: Iterable[Any]) -> TaskRecord:
    row = dict(zip(TASK, values, strict=True))
    return TaskRecord(**row | {"state": STATES.get(row["state"], row["state"])})
