"""Waiting for a task: look, sleep until something is worth a look, look again."""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from django.db import InterfaceError, OperationalError

from .conf import Options
from .errors import QueueUnavailableError
from .lease import Lease
from .policy import seconds
from .stores.base import Store
from .wakeups import FakeTimeSleeper, LocalSleeper, Sleeper, on_postgresql


class PollMixin(ABC):
    """The queue's ``poll``, and the sleepers it keeps from one wait to the next."""

    name: str
    store: Store
    options: Options

    @abstractmethod
    def claim(self, *, worker: str, limit: int = 1) -> list[Lease]:
        """See Queue."""

    def keep_sleepers(self) -> None:
        self.sleepers: list[Sleeper] = []
        weakref.finalize(self, close_all, self.sleepers)

    def poll(self, *, worker: str, wait: float = 0.0) -> Lease | None:
        """Lease the first visible task, waiting up to *wait* seconds for one.

        Returns at once when a task is enqueued, comes due, is given back or redriven, or a
        deadline passes; None when the wait is over.

        Args:
            worker: 1 to 200 characters; tells who holds the lease.
            wait: seconds, 0 or more.

        Raises:
            InvalidTaskError: the worker's name can't be stored, or *wait* is out of bounds.
            QueueUnavailableError: the database can't be reached, and couldn't until *wait* ended.
            django.db.transaction.TransactionManagementError: inside an ``atomic`` block.
        """
        end = self.monotonic() + seconds("wait", wait, minimum=0)
        lease = self.claim_one(worker, end)
        if lease or wait <= 0:
            return lease
        with self.borrowed_sleeper() as sleeper, sleeper:
            # From here on a commit wakes us. One that came before told nobody: look again.
            while True:
                visible, due = self.outlook()
                lease = self.claim_one(worker, end) if visible else None
                left = end - self.monotonic()
                if lease or left <= 0:
                    return lease
                sleeper.sleep(min(left, due, self.options.poll_interval))

    def claim_one(self, worker: str, end: float) -> Lease | None:
        """One lease; a database that can't be reached is waited for until *end*."""
        try:
            leases = self.claim(worker=worker, limit=1)
        except QueueUnavailableError:
            if end <= self.monotonic():
                raise
            return None
        return leases[0] if leases else None

    @contextmanager
    def borrowed_sleeper(self) -> Iterator[Sleeper]:
        """A sleeper of this queue's; its connection is kept for the next wait."""
        try:
            sleeper = self.sleepers.pop()
        except IndexError:
            sleeper = sleeper_for(self.store.using, [self.name], self.store.clock, self.options)
        try:
            yield sleeper
        finally:
            self.sleepers.append(sleeper)

    def outlook(self) -> tuple[bool, float]:
        """Whether a claim is worth while, and the seconds until the next time or deadline.

        One look at both: what comes due or becomes visible after it is either waited for, or
        announced to who sleeps.
        """
        try:
            visible, due_in = self.store.outlook(self.name)
        except (OperationalError, InterfaceError):
            return True, 1.0  # the database is away: the claim says so; look again soon
        return visible, due_in.total_seconds() if due_in else inf

    def monotonic(self) -> float:
        clock = self.store.clock
        return clock.now().timestamp() if clock else time.monotonic()

    def close(self) -> None:
        """Close the connections that waiting polls have opened."""
        close_all(self.sleepers)


def sleeper_for(using: str, queues: Sequence[str], clock: Any, options: Options) -> Sleeper:
    """The sleeper for those queues; under a fake clock no real time passes."""
    if clock is not None:
        return FakeTimeSleeper(using, queues, clock)
    if on_postgresql(using):
        from .listening import ListeningSleeper  # noqa: PLC0415  sites elsewhere need no psycopg

        return ListeningSleeper(using, queues, options.listen_using or using)
    return LocalSleeper(using, queues)


def close_all(sleepers: list[Sleeper]) -> None:
    while sleepers:
        sleepers.pop().close()
