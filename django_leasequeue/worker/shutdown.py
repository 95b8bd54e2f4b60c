"""Signals that end a worker, and the end of its process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* on each SIGTERM and SIGINT; outside the main thread signals are others' matter.

    *stop* may run between any two steps of the main thread: it may take no lock and raise nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(*_: Any) -> None:
        stop()

    former = {signum: signal.signal(signum, handle) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in former.items():
            signal.signal(signum, handler)


def leave(status: Any) -> NoReturn:
    """End the process now, without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)
