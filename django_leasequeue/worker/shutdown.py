"""Signals that end a worker, what they tell its main thread, and the end of its process."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final, NoReturn, TypeVar

Note = TypeVar("Note")

SIGNAL_SECONDS_MAX: Final = 0.5


def take(notes: queue.SimpleQueue[Note], seconds: float) -> Note:
    """Return the next of the main thread's *notes*.

    It waits in short turns. Python's part of a signal handler runs between two steps of the main
    thread: a signal that comes in the instant before a wait, or that the system gives to another
    thread, doesn't end the wait.

    Raises:
        queue.Empty: none has come within *seconds*, or within a turn: look around, and ask again.
    """
    return notes.get(timeout=max(0.0, min(seconds, SIGNAL_SECONDS_MAX)))


class Notes:
    """What a worker's main thread is told while it waits: to stop, or to look again.

    A put() can be interrupted by a signal handler that puts, where a lock or an event would
    deadlock.
    """

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stops = 0

    def stop(self) -> None:
        self.told.put(True)

    def look(self) -> None:
        self.told.put(False)

    def wait_for(
        self, condition: Callable[[], bool], *, seconds: float = inf, stops: int = 2
    ) -> bool:
        """Return when *condition* is true, or false after *seconds* or that many stops."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if self.stops >= stops or left <= 0:
                return False
            with suppress(queue.Empty):
                self.stops += take(self.told, left)
        return True


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* on each SIGTERM and SIGINT; outside the main thread signals are others' matter.

    SIGHUP is a first one, and never a second: a terminal that closes sends it, and so does its
    shell. Where it is to be ignored (nohup), it is.

    *stop* may run between any two steps of the main thread: it may take no lock and raise nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first = [True]  # taken out by who comes first: pop() needs no lock

    def handle(signum: int, _: Any) -> None:
        try:
            first.pop()
        except IndexError:
            if signum == signal.SIGHUP:
                return
        stop()

    asking = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        asking.remove(signal.SIGHUP)
    former = {signum: signal.signal(signum, handle) for signum in asking}
    try:
        yield
    finally:
        for signum, handler in former.items():
            signal.signal(signum, handler)


def leave(status: Any) -> NoReturn:
    """End the process now, without waiting for its threads."""
    flush()
    os._exit(status if isinstance(status, int) else 1)


def flush() -> None:
    """Bring out what was logged and printed, where there is still somebody to read it."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # it was closed, here or over there
            stream.flush()
