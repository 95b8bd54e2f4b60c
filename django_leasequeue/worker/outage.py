"""Waiting out a database that can't be reached: longer each time, and without filling the log."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from django.db import Error

from django_leasequeue.errors import QueueUnavailableError

# A read-only server or a missing table are waited for, too: both are mended elsewhere.
OUTAGE: Final = (QueueUnavailableError, Error)
PAUSE_SECONDS_MIN: Final = 0.1
LINE_SECONDS: Final = 1.0  # between two lines about it

logger = logging.getLogger("django_leasequeue")


class Outage:
    """What the worker's threads know about the database being away."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since: float | None = None
        self.said_at = 0.0

    def met(self, error: Exception) -> None:
        """A call failed: say so, once a second at most."""
        now = time.monotonic()
        with self.lock:
            self.since = self.since or now
            if now - self.said_at < LINE_SECONDS:
                return
            self.said_at = now
        logger.warning("outage: %s; trying again", " ".join(str(error).split()))

    def over(self) -> None:
        """A call worked."""
        if self.since is None:
            return
        with self.lock:
            since, self.since = self.since, None
        if since is not None:
            logger.info("the database is back after %.1fs", time.monotonic() - since)


def pause(failures: int, seconds_max: float) -> float:
    """Seconds to wait after that many failures in a row."""
    return min(PAUSE_SECONDS_MIN * 2.0 ** min(failures, 30), seconds_max)
