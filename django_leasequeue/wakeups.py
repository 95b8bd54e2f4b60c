"""Waking workers that sleep, without making anybody wait.

A worker that finds nothing to do sleeps until somebody tells it that there is something, or until
it knows that something comes due. On PostgreSQL it is told by NOTIFY; within one process, and on
the other databases, by its own process; whatever gets lost costs at most the poll interval.

NOTIFY inside an enqueuer's transaction would queue all committing notifiers behind one lock of the
server. So it is sent after the commit, in a statement of its own, and only where somebody sleeps.
That opens a race, which the order of steps closes:

    worker                              enqueuer
    1  LISTEN                           1  INSERT
    2  take the "somebody sleeps" lock  2  COMMIT
    3  look at the queue                3  is the lock taken? then NOTIFY
    4  sleep

If the enqueuer commits before step 3 of the worker, the worker sees the task. If it commits after
that, the lock has been taken before (step 2), so the enqueuer notifies a worker that listens.

"Somebody sleeps" is a shared advisory lock on the listening session, one per queue: it ends with
its session, leaves no rows behind, and testing it is one call. A second enqueuer that tests at the
same instant, or another queue of the same hash, makes a needless notification, no more.
"""

from __future__ import annotations

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from django.db import Error, connections

from .stores.drivers import close_if_lost

logger = logging.getLogger("django_leasequeue")

CHANNEL: Final = "leasequeue"
LOCK_CLASS: Final = 1_279_611_985  # any number: it keeps our advisory locks apart from a site's
SLEEP_SECONDS_MAX: Final = 3600.0  # for ever, to a clock that only counts microseconds
KEEPALIVE: Final = {
    **{"keepalives": 1, "keepalives_idle": 30},
    **{"keepalives_interval": 10, "keepalives_count": 3},
}


@dataclass(frozen=True, slots=True)
class Wake:
    """Tells those who wait for *queue* to look. Equal wakes of one transaction are sent once.

    ``all``: also those who have muted it.
    """

    using: str
    queue: str
    all: bool = False

    def __call__(self) -> None:
        self.here()
        if on_postgresql(self.using):
            self.notify()

    def here(self) -> None:
        """Wake the sleepers of this process."""
        if not asleep:  # nor was anybody: who goes to sleep looks once more
            return
        with asleep_lock:
            sleepers = list(asleep)
        for sleeper in sleepers:
            if sleeper.using == self.using and self.queue in sleeper.queues:
                sleeper.wake()

    def notify(self) -> None:
        """Tell other processes; where that fails they find out by themselves, at their next look.

        It is after the commit: an error would say of what is stored that it isn't.
        """
        from .stores.postgres.statements import run  # noqa: PLC0415  no driver elsewhere

        try:
            run(self.using, "notify", self.told)
        except Error as error:
            logger.warning("nobody could be told that queue=%s has work: %s", self.queue, error)
            close_if_lost(connections[self.using])

    @property
    def told(self) -> Mapping[str, Any]:
        """What sql/notify.sql is given."""
        return {"channel": CHANNEL, "class": LOCK_CLASS, "queue": self.queue, "all": self.all}


class Sleeper(ABC):
    """Sleeps until woken. As a context manager it stands announced: wakes are not missed.

    Used by one thread at a time; only ``wake`` may be called by others.
    """

    def __init__(self, using: str, queues: Sequence[str]) -> None:
        self.using = using
        self.queues = frozenset(queues)
        # Queues of which an enqueue is nothing to wake up for: nothing may be claimed from them.
        self.muted: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        with asleep_lock:
            asleep.add(self)
        self.announce()
        return self

    def __exit__(self, *_: object) -> None:
        with asleep_lock:
            asleep.discard(self)
        self.withdraw()

    @abstractmethod
    def sleep(self, seconds: float) -> bool:
        """Return after *seconds*, or true when woken before, by ``wake`` or by a notification."""

    @abstractmethod
    def wake(self) -> None:
        """Wake the sleeper, now or at its next sleep. Safe from any thread and signal handler."""

    def announce(self) -> None:
        """Let other processes know that somebody sleeps."""

    def withdraw(self) -> None:
        """Nobody sleeps here any more."""

    def close(self) -> None:
        """Give back what the sleeper holds."""


def on_postgresql(using: str) -> bool:
    """Whether *using* is a PostgreSQL; a queue in memory has no database at all."""
    return using in connections.settings and connections[using].vendor == "postgresql"


def unpooled(using: str) -> Any:
    """A new connection to *using*, not open yet, that takes none of the few in the site's pool."""
    connection = connections[using].copy()
    connection.settings_dict["OPTIONS"].pop("pool", None)
    return connection


def own_connection(using: str) -> Any:
    """A new connection for what lasts longer than a query; for any thread, one at a time."""
    connection = unpooled(using)
    if connection.vendor == "postgresql":
        for name, value in KEEPALIVE.items():
            connection.settings_dict["OPTIONS"].setdefault(name, value)
    connection.settings_dict["AUTOCOMMIT"] = True
    connection.inc_thread_sharing()
    try:
        connection.ensure_connection()
    except BaseException:
        connection.close()  # it may be half open
        raise
    return connection


asleep: weakref.WeakSet[Sleeper] = weakref.WeakSet()
asleep_lock: Final = threading.Lock()


class LocalSleeper(Sleeper):
    """Sleeps on an event of this process: what other processes do is found by polling."""

    def __init__(self, using: str, queues: Sequence[str]) -> None:
        super().__init__(using, queues)
        self.woken = threading.Event()

    def sleep(self, seconds: float) -> bool:
        woken = self.woken.wait(seconds)
        self.woken.clear()
        return woken

    def wake(self) -> None:
        self.woken.set()


class FakeTimeSleeper(LocalSleeper):
    """Sleeps by a fake clock: until it is advanced far enough, or something wakes us."""

    def __init__(self, using: str, queues: Sequence[str], clock: Any) -> None:
        super().__init__(using, queues)
        self.clock = clock

    def sleep(self, seconds: float) -> bool:
        end = self.clock.now() + timedelta(seconds=min(seconds, SLEEP_SECONDS_MAX))
        self.clock.wait_until(end, self.woken.is_set)
        return super().sleep(0)

    def wake(self) -> None:
        super().wake()
        self.clock.poke()
