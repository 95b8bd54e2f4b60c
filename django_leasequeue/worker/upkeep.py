"""What a worker does for its queues' log, on a thread and a connection of its own.

It prunes as ``OPTIONS["retention"]`` says, whether or not there is work: a queue that is never
empty is the one whose log grows. And it adds the calls that were refused to the tallies, which a
refused call can't do itself: its transaction is rolled back, or was never meant to write. It
keeps the worker's presence in the registry. And it goes on with what an operator began and nobody
looks at any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import connections

from django_leasequeue import signals
from django_leasequeue.batches import go_on, unfinished
from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue
from django_leasequeue.retention import BATCH_ROWS, Walk, prune_batches
from django_leasequeue.stores.base import REFUSED
from django_leasequeue.transitions import Kind

from .outage import OUTAGE
from .presence import Presence
from .sessions import Session

IDLE_SECONDS: Final = 10.0
PAUSE_SECONDS_MIN: Final = 0.05
SHARE: Final = 3  # at most every third second goes into pruning
# What is behind catches up by larger batches: beside busy threads a call takes its time, however
# little it does. Elsewhere a batch keeps all others from writing, or takes long.
ROWS_MAX: Final = {"postgresql": 10_000}
OUTAGE_PAUSE_SECONDS: Final = 30.0
ANEW_SECONDS: Final = 86_400.0  # then it also finds what was committed behind it

logger = logging.getLogger("django_leasequeue")


class Upkeep:
    """Counts refusals, and prunes, for the *queues* that the worker *name* serves."""

    def __init__(
        self,
        name: str,
        queues: Sequence[Queue],
        retention: Mapping[Kind, float],
        presence: Presence | None = None,
    ) -> None:
        self.name = name
        self.presence = presence
        self.store = queues[0].store
        self.queues = [queue.name for queue in queues]
        self.retention = retention
        self.walk = self.begin()
        self.rows_max = ROWS_MAX.get(connections[self.store.using].vendor, BATCH_ROWS)
        self.batch = BATCH_ROWS
        self.refused: deque[tuple[str, str]] = deque()
        self.stopping = threading.Event()

    def begin(self) -> Walk | None:
        """A walk through the log from its beginning, where something is to be forgotten."""
        self.began_at = time.monotonic()
        return Walk(self.store, self.retention, queues=self.queues) if self.retention else None

    def run(self) -> None:
        """Until ``stop``: a turn, and a pause that leaves the database to the tasks."""
        session = Session()
        signals.lease_lost.connect(self.count)
        try:
            while True:
                pause = self.turn()
                session.tidy()
                if self.stopping.wait(pause):
                    break
            if self.presence:
                self.presence.end()
            self.tell_refusals()
        except OUTAGE as error:
            logger.warning("refusals that were not counted: %s", error)
        finally:
            signals.lease_lost.disconnect(self.count)

    def stop(self) -> None:
        """End, with what was refused until now on record."""
        self.stopping.set()

    def turn(self) -> float:
        """Do what there is to do, a batch at most; how long to pause after it, in seconds."""
        if self.presence:
            self.presence.keep()
        began_at = time.monotonic()
        if began_at - self.began_at >= ANEW_SECONDS:
            self.walk = self.begin()
        try:
            self.tell_refusals()
            if batch := unfinished(self.store.using):
                go_on(batch, seconds=PAUSE_SECONDS_MIN, wait=False)
            rows, more = self.walk.step(batch=self.batch) if self.walk else (0, False)
            if not more:
                rows += (gone := prune_batches(self.store.using, self.retention))
                more = gone > 0
        except Exception as error:
            told = None if isinstance(error, OUTAGE) else error
            reason = " ".join(str(error).split())
            logger.warning("upkeep failed, to be tried again: %s", reason, exc_info=told)
            return OUTAGE_PAUSE_SECONDS
        self.batch = min(2 * self.batch, self.rows_max) if more else BATCH_ROWS
        took = time.monotonic() - began_at
        if rows:
            logger.debug("pruned rows=%d in=%.3fs", rows, took)
        return max(PAUSE_SECONDS_MIN, (SHARE - 1) * took) if more or batch else IDLE_SECONDS

    def count(self, sender: Any, lease: Lease, **_: Any) -> None:
        """A call was refused: ``lease_lost`` is sent for each."""
        if lease.worker == self.name:
            self.refused.append((lease.queue, REFUSED))

    def tell_refusals(self) -> None:
        refused = Counter(self.refused.popleft() for _ in range(len(self.refused)))
        try:
            if refused:
                self.store.tally(refused)
        except OUTAGE:
            self.refused.extend(refused.elements())
            raise
