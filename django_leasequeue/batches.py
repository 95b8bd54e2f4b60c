"""What operators do to many tasks at once, as one record: begun, gone on with, looked at later.

A batch knows its tasks by number from its beginning on: what dies meanwhile isn't meant. It goes
on a slice at a time, each a transaction that moves tasks and says so in the batch, so that whoever
comes by can go on: the page that asked, a worker (``worker/upkeep.py``), the command. A crash
undoes a slice at most.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import connections, transaction
from django.db.models import Count, Exists, F, OuterRef, QuerySet

from . import validation
from .failure import fingerprint
from .models import Batch, BatchItem, Task, TaskTransition, dead_at
from .policy import gap_of
from .queue import Queue
from .records import Slots
from .stores import store_for
from .transitions import ENDED, Kind

SLICE: Final = 1000  # tasks; their rows are locked until it has ended, a fraction of a second
LEFT: Final = "it has left the queue"
BUSY: Final = "busy"
ALIVE: Final = "it is no dead letter any more"
MOVED: Final = ""
NAMED_MAX: Final = 20  # queues
CHOSEN_MAX: Final = 1000  # characters
WHY_MAX: Final = 500

# The database's own INSERT ... SELECT: ten thousand numbers would cross the wire twice.
CHOOSE: Final = """
INSERT INTO leasequeue_batch_item (batch_id, place, seq)
SELECT %s, row_number() OVER (ORDER BY chosen.in_queue, chosen.of_tenant, chosen.number),
       chosen.number
  FROM ({rows}) AS chosen
"""


def begin(
    rows: QuerySet[Any],
    *,
    verb: str,
    by: str,
    reason: str = "",
    chosen: str = "",
    rate: float | None = None,
    letters: bool = False,
) -> Batch:
    """Put on record that somebody wants to redrive, or to cancel, the tasks of *rows*.

    Args:
        rows: tasks, or their first transitions: what has left is skipped, and told.
        verb: ``redrive`` or ``cancel``.
        chosen: in words, how they were chosen.
        rate: of a redrive: tasks per second.
        letters: only while they are dead letters.

    Raises:
        InvalidTaskError: *by*, *reason* or *rate* can't be meant; nothing is on record.
    """
    using = rows.db
    validation.remark("by", by)
    validation.remark("reason", reason)
    if rate is not None:
        gap_of(rate)
    now = store_for(using).now()
    with transaction.atomic(using=using):
        batch = Batch.objects.using(using).create(
            verb=verb,
            by=by,
            reason=reason,
            queues=queues_of(rows),
            chosen=chosen[:CHOSEN_MAX],
            letters=letters,
            rate=rate,
            next_at=None if rate is None else now,
            at=now,
        )
        with suppress(EmptyResultSet):  # a filter that no row can match
            batch.total = choose(batch, rows)
        batch.save(using=using, update_fields=["total"])
    return batch


def queues_of(rows: QuerySet[Any]) -> str:
    named = list(rows.order_by("queue").values_list("queue", flat=True).distinct()[: NAMED_MAX + 1])
    return ", ".join([*named[:NAMED_MAX], *(["…"] if named[NAMED_MAX:] else [])])


def choose(batch: Batch, rows: QuerySet[Any]) -> int:
    """Remember the tasks of *rows*, one queue and tenant after the other; how many they are."""
    using = rows.db
    numbers = rows.order_by().values(number=F("pk"), in_queue=F("queue"), of_tenant=F("tenant"))
    sql, parameters = numbers.query.get_compiler(using).as_sql()
    with connections[using].cursor() as cursor:
        cursor.execute(CHOOSE.format(rows=sql), [batch.pk, *parameters])
        chosen: int = cursor.rowcount
    return chosen


def go_on(batch: Batch, *, seconds: float, wait: bool = True) -> Batch:
    """Deal with slices of *batch* until it is done or so many seconds are over; as it is then.

    Args:
        wait: for who else is at it, to find the slice after theirs; else leave it to them.
    """
    end = time.monotonic() + seconds
    while batch.done_at is None:
        found = store_for(batch.using).repeated(partial(go_on_once, batch, wait=wait))
        batch = found or batch
        if found is None or time.monotonic() >= end:
            break
    return batch


def go_on_once(batch: Batch, *, wait: bool) -> Batch | None:
    using = batch.using
    with transaction.atomic(using=using):
        rows = Batch.objects.using(using).select_for_update(skip_locked=not wait)
        found = rows.filter(pk=batch.pk).first()
        if found and found.done_at is None:
            deal_with_slice(found)
            found.save(using=using)
    return found


def deal_with_slice(batch: Batch) -> None:
    using = batch.using
    part = items_of(batch).filter(place__gt=batch.passed, place__lte=batch.passed + SLICE)
    numbers = list(part.values_list("seq", flat=True))
    held = Task.objects.using(using).filter(pk__in=numbers).order_by("queue", "tenant", "seq")
    stayed = dict.fromkeys(numbers, LEFT)
    rows = held.only("seq", "queue", "tenant", "task_id")
    for _, group in groupby(rows, attrgetter("queue", "tenant")):
        tasks = list(group)
        skipped = MOVES[batch.verb](batch, tasks)
        for task in tasks:
            stayed[task.pk] = skipped.get(task.task_id, MOVED)
    outcomes = defaultdict(list)
    for number, why in stayed.items():
        outcomes[why].append(number)
    for why, those in outcomes.items():
        part.filter(seq__in=those).update(outcome=why[:WHY_MAX])
    batch.moved += len(outcomes[MOVED])
    batch.skipped += len(numbers) - len(outcomes[MOVED])
    if batch.passed >= batch.total:
        batch.done_at = store_for(using).now()


def redrive(batch: Batch, tasks: Sequence[Task]) -> Mapping[str, str]:
    """Redrive *tasks* of one queue and tenant; ids of those that stayed, with the reason."""
    queue = Queue(tasks[0].queue, using=batch.using)
    slots = None
    if batch.next_at is not None:
        slots = Slots(first_at=batch.next_at, gap=gap_of(batch.rate))
    ids = [task.task_id for task in tasks]
    done = queue.redrive_into(
        slots, ids, tenant=tasks[0].tenant, by=batch.by, reason=batch.reason or None
    )
    if done.left:
        batch.next_at = done.left.first_at
    return done.skipped


def cancel(batch: Batch, tasks: Sequence[Task]) -> Mapping[str, str]:
    """Cancel those of *tasks* whose rows nobody else has locked; why the others stayed.

    The rows are locked by number first: a namesake that came since is not taken for the task, and
    nobody waits for a worker that is in the middle of a move.
    """
    using = batch.using
    rows = Task.objects.using(using).filter(pk__in=[task.pk for task in tasks])
    with transaction.atomic(using=using):
        meant = rows.filter(dead_at(store_for(using).now())) if batch.letters else rows
        free = meant.select_for_update(skip_locked=True).order_by("pk")
        locked = set(free.values_list("pk", flat=True))
        held = set(meant.values_list("pk", flat=True))
        others = set(rows.values_list("pk", flat=True)) - held
        ids = [task.task_id for task in tasks if task.pk in locked]
        queue = Queue(tasks[0].queue, using=using)
        queue.cancel_many(ids, tenant=tasks[0].tenant, by=batch.by, reason=batch.reason or None)
    stayed = {task.task_id: LEFT for task in tasks if task.pk not in locked}
    stayed |= {task.task_id: BUSY for task in tasks if task.pk in held - locked}
    return stayed | {task.task_id: ALIVE for task in tasks if task.pk in others}


MOVES: Final[Mapping[str, Callable[[Batch, Sequence[Task]], Mapping[str, str]]]] = {
    "redrive": redrive,
    "cancel": cancel,
}


def would_stay(letters: QuerySet[Any], now: datetime) -> int:
    """How many of *letters* a redrive would leave where they are, for their dedupe key's sake.

    A live task has it; or several of them share it, of which one gets it.
    """
    same = {name: OuterRef(name) for name in ("queue", "tenant")}
    holders = Task.objects.using(letters.db).filter(live_key=OuterRef("dedupe_key"), **same)
    keyed = letters.filter(dedupe_key__isnull=False).order_by()
    free = keyed.filter(~Exists(holders.exclude(dead_at(now))))
    return keyed.count() - free.values("queue", "tenant", "dedupe_key").distinct().count()


def unfinished(using: str) -> Batch | None:
    """The oldest batch that is not done."""
    return Batch.objects.using(using).filter(done_at=None).order_by("pk").first()


def items_of(batch: Batch) -> QuerySet[BatchItem]:
    return BatchItem.objects.using(batch.using).filter(batch_id=batch.pk)


def stayed_of(batch: Batch) -> QuerySet[BatchItem]:
    return items_of(batch).exclude(outcome=MOVED).exclude(outcome=None)


def reasons(batch: Batch) -> Counter[str]:
    """Why tasks of *batch* stayed, and how many each; alike reasons as one."""
    found: Counter[str] = Counter()
    for why, count in stayed_of(batch).order_by().values_list("outcome").annotate(Count("seq")):
        found[fingerprint(why) or ""] += count
    return found


def stayed(batch: Batch, limit: int) -> list[tuple[str, str, int]]:
    """The first tasks of *batch* that stayed: name, reason and number each."""
    items = list(stayed_of(batch).order_by("place")[:limit])
    log = TaskTransition.objects.using(batch.using)
    names = {
        row.pk: f"{row.queue}/{row.task_id}"
        for row in log.filter(pk__in=[item.seq for item in items]).only("queue", "task_id")
    }
    return [(names.get(item.seq, "?"), item.outcome or "", item.seq) for item in items]


def ended_since(batch: Batch) -> Counter[str]:
    """How the tasks that *batch* moved have left their queues since, by kind of transition."""
    held = Task.objects.using(batch.using).filter(pk=OuterRef("seq"))
    gone = items_of(batch).filter(~Exists(held), outcome=MOVED).values("seq")
    log = TaskTransition.objects.using(batch.using)
    lives = log.filter(pk__in=gone, kind=Kind.ENQUEUED).values("life")
    ends = log.filter(life__in=lives, kind__in=ENDED)
    return Counter(dict(ends.order_by().values_list("kind").annotate(Count("pk"))))
