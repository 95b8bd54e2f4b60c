"""What a worker tells of itself, and what it is told: which of its queues are paused.

Both are for people: a claim asks about pauses by itself, and nobody takes a task from a worker
because it is silent here.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from math import inf

from django_leasequeue import registry
from django_leasequeue.queue import Queue
from django_leasequeue.records import Paused, told_as
from django_leasequeue.registry import RunningTask, WorkerFacts
from django_leasequeue.wakeups import Sleeper

from .deliveries import Deliveries, Delivery
from .outage import OUTAGE

logger = logging.getLogger("django_leasequeue")


class Presence:
    """The worker *name* in the registry."""

    def __init__(
        self,
        name: str,
        queues: Sequence[Queue],
        threads: int,
        deliveries: Deliveries,
        sleeper: Sleeper,
    ) -> None:
        self.name = name
        self.store = queues[0].store
        self.queues = tuple(queue.name for queue in queues)
        self.threads = threads
        self.deliveries = deliveries
        self.sleeper = sleeper
        self.made_at = time.monotonic()
        self.started_at: datetime | None = None
        self.told_at = -inf
        self.paused: dict[str, Paused] = {}

    def keep(self) -> None:
        """Tell of ourselves where it is time to."""
        if time.monotonic() - self.told_at >= registry.TELL_SECONDS:
            self.told_at = time.monotonic()
            with self.unheard():
                self.tell()

    def end(self) -> None:
        if self.started_at:
            with self.unheard():
                registry.leave(self.store.using, self.name, self.started_at)

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Nobody's work suffers; the claims say what is wrong with the database."""
        try:
            yield
        except OUTAGE as error:
            logger.debug("not told to the registry: %s", " ".join(str(error).split()))

    def tell(self) -> None:
        now = self.store.now()
        self.started_at = self.started_at or ago(self.made_at, now)
        registry.tell(self.store.using, self.facts(now, self.started_at))
        self.notice(self.store.pauses())

    def facts(self, now: datetime, started_at: datetime) -> WorkerFacts:
        running = sorted(self.deliveries.at_work(), key=Delivery.seconds_run, reverse=True)
        return WorkerFacts(
            name=self.name,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            threads=self.threads,
            queues=self.queues,
            started_at=started_at,
            seen_at=now,
            tasks=tuple(task_of(delivery, now) for delivery in running),
            alive=True,
        )

    def notice(self, pauses: Mapping[str, Paused]) -> None:
        """Say which of our queues are paused, or no longer."""
        ours = {queue: pauses[queue] for queue in self.queues if queue in pauses}
        for queue, paused in ours.items():
            if queue not in self.paused:
                by, reason = paused.by or "somebody", " ".join((paused.reason or "").split())
                logger.warning("paused queue=%s by=%s reason=%s", queue, by, reason)
        for queue in self.paused.keys() - ours.keys():
            logger.info("resumed queue=%s", queue)
        if ours.keys() != self.sleeper.muted:
            # Else each enqueue to a paused queue would wake all its workers, for nothing.
            self.sleeper.muted = frozenset(ours)
            self.sleeper.wake()
        self.paused = ours


def task_of(delivery: Delivery, now: datetime) -> RunningTask:
    lease, since = delivery.lease, ago(delivery.started_at or time.monotonic(), now)
    return told_as(RunningTask, lease, life=str(lease.life), since=since)


def ago(instant: float, now: datetime) -> datetime:
    """What the database's clock said at that *instant* of the process's own."""
    return now - timedelta(seconds=time.monotonic() - instant)
