"""How long the log is kept, and the walk through it that forgets the rest.

A walk goes through the log in batches, each a short transaction of its own: it looks at a bounded
number of rows by their position, goes on where it was, and needs no index of its own. A row that is
committed late, behind the walk, is found by the next one that begins.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from .models import Batch, BatchItem, TaskTransition
from .stores import pruning, store_for
from .stores.base import Old, Store
from .transitions import ENDED, Kind

BATCH_ROWS: Final = 1000
BUSY_PAUSE_SECONDS: Final = 0.1


class Walk:
    """One way through the log of *store*, from its beginning.

    Args:
        retention: seconds by kind, of ENDED for whole lives that ended so, of REPEATED for rows
            that no fold needs; what isn't named is kept for ever.
        queues: None: all.
    """

    def __init__(
        self, store: Store, retention: Mapping[Kind, float], *, queues: Sequence[str] | None = None
    ) -> None:
        kinds: dict[float, list[Kind]] = defaultdict(list)
        for kind, seconds in retention.items():
            kinds[seconds].append(kind)
        self.store = store
        self.positions = {
            Old(kinds=alike, age=timedelta(seconds=seconds), queues=queues): 0
            for seconds, alike in kinds.items()
        }
        self.busy = False

    def step(self, *, batch: int = BATCH_ROWS) -> tuple[int, bool]:
        """Forget a batch of rows; how many they were, and whether there may be more at once.

        ``busy`` says afterwards whether somebody else was at it.
        """
        rows, more, self.busy = 0, False, False
        for old, behind in self.positions.items():
            done = self.store.prune(old, behind=behind, size=batch)
            if done.upto is None:
                self.busy = True
                continue
            self.positions[old] = done.upto
            rows, more = rows + done.rows, more or done.more
        return rows, more


def prune(
    using: str,
    retention: Mapping[Kind, float],
    *,
    queues: Sequence[str] | None = None,
    batch: int = BATCH_ROWS,
    watch: Callable[[float], None] | None = None,
) -> int:
    """Forget all that is older than *retention* says, beside live traffic; how many rows it was.

    Args:
        using: alias of the database.
        retention, queues: as of Walk.
        batch: rows that one transaction looks at, at most.
        watch: called with how much of the log is behind, of 1, after each of them.
    """
    walk = Walk(store_for(using), retention, queues=queues)
    last = TaskTransition.objects.using(using).newest() or 1
    total, more = 0, True
    while more or walk.busy:
        rows, more = walk.step(batch=batch)
        total += rows
        if watch:
            watch(min(1.0, min(walk.positions.values(), default=last) / last))
        if walk.busy:
            time.sleep(BUSY_PAUSE_SECONDS)
    while rows := prune_batches(using, retention, size=batch):
        total += rows
    return total


def prune_batches(using: str, retention: Mapping[Kind, float], *, size: int = BATCH_ROWS) -> int:
    """Forget some of what operators did to many tasks at once; how many rows it was.

    A batch is kept, from its end on, for the longest time that a task's story is.
    """
    kept = [seconds for kind, seconds in retention.items() if kind in ENDED]
    if not kept:
        return 0
    before = store_for(using).now() - timedelta(seconds=max(kept))
    batch = Batch.objects.using(using).filter(done_at__lt=before).order_by("pk").first()
    if batch is None:
        return 0
    items = BatchItem.objects.using(using).filter(batch_id=batch.pk)
    places = items.order_by("place").values_list("place", flat=True)
    for first in places[:1]:
        return items.filter(place__lt=first + size).delete()[0]
    return batch.delete(using=using)[0]


def old_rows(
    using: str, retention: Mapping[Kind, float], *, queues: Sequence[str] | None = None
) -> dict[Kind, int]:
    """How many rows of the log are older than *retention* says, by what says so.

    The duplicates of a task that has left count with it and with themselves.
    """
    now = store_for(using).now()
    return {
        kind: pruning.old_rows(using, kind, queues=queues, before=now - timedelta(seconds=seconds))
        for kind, seconds in retention.items()
    }
