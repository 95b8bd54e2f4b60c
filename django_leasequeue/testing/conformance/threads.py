"""Work in another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from django.db import connections

T = TypeVar("T")

# Seconds for what comes at once, on a machine that may have much else to do: who waits in vain
# for that long has failed.
PATIENCE: Final = 45.0


def in_thread(work: Callable[[], T]) -> Future[T]:
    """The answer of *work*, done in a thread that gives its connections back."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001  the test wants to see it
            connections.close_all()
            future.set_exception(error)
        else:
            connections.close_all()
            future.set_result(answer)

    threading.Thread(target=run, daemon=True).start()
    return future


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Return when *condition* has come true.

    Raises:
        AssertionError: it didn't within *seconds*.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.005)
