"""A worker's threads, each with database sessions of its own; one that fails ends the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from django.db import connections

from django_leasequeue.wakeups import unpooled

from .readiness import CannotStartError
from .shutdown import Notes

PATIENCE_SECONDS: Final = 1.0

logger = logging.getLogger("django_leasequeue")

Work = Callable[[], None]


class Crew:
    """Starts the threads of one worker, and knows which of them are at work.

    Args:
        using: the queues' database.
        notes: tell the main thread that one of them has ended.
    """

    def __init__(self, using: str, notes: Notes) -> None:
        self.using = using
        self.notes = notes
        self.threads: list[threading.Thread] = []
        self.at_work: set[str] = set()
        self.failed = False
        self.refusal: CannotStartError | None = None

    def start(self, name: str, work: Work, *, within: Callable[[Work], None] | None = None) -> None:
        """Do *work* in a thread of that name.

        Args:
            within: what sets up a thread for tasks; None: what keeps the work's sessions out of
                the site's pool, which tasks may empty.
        """
        self.at_work.add(name)
        args = name, within or self.outside_the_pool, partial(tidied, work)
        thread = threading.Thread(target=self.guarded, args=args, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def outside_the_pool(self, work: Work) -> None:
        connections[self.using] = unpooled(self.using)
        work()

    def guarded(self, name: str, within: Callable[[Work], None], work: Work) -> None:
        try:
            within(work)
        except CannotStartError as refusal:
            self.refusal = refusal
            self.notes.stop()
        except BaseException:
            self.fail()  # first: what failed may be the log
            logger.exception("the worker's %s failed", name)
        finally:
            self.at_work.discard(name)  # a thread is still alive when its note is read
            self.notes.look()

    def fail(self) -> None:
        """Have the worker stop, and its supervisor start another."""
        self.failed = True
        self.notes.stop()

    def join(self, *names: str) -> None:
        """Wait for the threads whose names begin so, a moment for each."""
        for thread in self.threads:
            if thread.name.startswith(names):
                thread.join(PATIENCE_SECONDS)

    def goes_on(self, *names: str) -> bool:
        """Whether one of the threads whose names begin so is at work still."""
        return any(name.startswith(names) for name in list(self.at_work))


def tidied(work: Work) -> None:
    """Do *work*, and close what it has opened, in the thread that it was opened in."""
    try:
        work()
    finally:
        connections.close_all()
