"""The sleeper on PostgreSQL: a LISTEN connection that is mended when it breaks.

See ``wakeups`` for the order of steps that makes sure nothing is missed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from django.db import Error

from .stores.drivers import is_direct
from .wakeups import CHANNEL, LOCK_CLASS, Sleeper, own_connection

PROBE_SECONDS: Final = 60.0  # a dead peer gives no error for minutes; a probe finds it
ECHO_SECONDS: Final = 2.0  # how long our own notification may take to come back
BACKOFF_SECONDS_MAX: Final = 30.0
DATABASE_ERRORS: Final = (psycopg.Error, Error, OSError)

logger = logging.getLogger("django_leasequeue")


class ListeningSleeper(Sleeper):
    """Sleeps on LISTEN, over a connection of its own that is mended when it breaks."""

    def __init__(self, using: str, queues: Sequence[str], listen_using: str) -> None:
        super().__init__(using, queues)
        self.listen_using = listen_using
        self.session: Any = None  # a psycopg connection
        self.wrapper: Any = None
        self.deaf = False  # LISTEN doesn't work here: poll
        self.failures = 0
        self.retry_at = 0.0
        self.heard_at = 0.0
        self.pulling = threading.RLock()  # a signal handler may pull while its thread does
        self.bell, self.rope = os.pipe()
        os.set_blocking(self.rope, False)

    def announce(self) -> None:
        if self.deaf or time.monotonic() < self.retry_at:
            return
        with self.mending():
            if self.session is None:
                self.connect()
            if not self.deaf:
                self.session.execute(
                    "SELECT pg_advisory_lock_shared(%s, hashtext(q)) FROM unnest(%s::text[]) q",
                    [LOCK_CLASS, sorted(self.queues - self.muted)],
                )

    def withdraw(self) -> None:
        if self.session is not None:
            with self.mending():
                self.session.execute("SELECT pg_advisory_unlock_all()")

    def sleep(self, seconds: float) -> bool:
        if self.has_come_back():
            return True  # what was enqueued meanwhile notified nobody: worth a look at once
        ready = self.wait_for_input(min(seconds, self.patience()))
        if self.bell in ready:
            os.read(self.bell, 4096)
        if self.session is not None:
            with self.mending():
                self.hear(bool(ready))
        return bool(ready)

    def wait_for_input(self, seconds: float) -> set[int]:
        """Which of the bell and the session have something to read; none after *seconds*."""
        # Not select(): it refuses descriptors from 1024 on, and a busy site has that many.
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        if self.session is not None:
            poll.register(self.session.fileno(), select.POLLIN)
        return {number for number, _ in poll.poll(math.ceil(seconds * 1000))}

    def patience(self) -> float:
        """Seconds until the session needs us: to be probed, or to be opened again."""
        if self.session is None and not self.deaf:
            return max(self.retry_at - time.monotonic(), 0.0)
        return PROBE_SECONDS

    def has_come_back(self) -> bool:
        """Whether the lost session could be opened again just now."""
        if self.session is not None:
            return False
        self.announce()
        return self.session is not None

    def hear(self, something_came: bool) -> None:
        """Take in what came, and make sure now and then that the other side is still there."""
        if something_came:
            self.session.pgconn.consume_input()
            while self.session.pgconn.notifies():
                self.heard_at = time.monotonic()
        elif time.monotonic() - self.heard_at >= PROBE_SECONDS:
            self.session.execute("SELECT 1")
            self.heard_at = time.monotonic()

    def wake(self) -> None:
        # Full: it wakes up anyway. Closed: it sleeps no more, and the number may be another's.
        with self.pulling, contextlib.suppress(OSError):
            os.write(self.rope, b"!")

    def connect(self) -> None:
        """Open the session, LISTEN, and find out whether notifications really arrive."""
        self.wrapper = own_connection(self.listen_using)
        self.session = self.wrapper.connection
        self.session.execute(f"LISTEN {CHANNEL}")
        self.deaf = not (is_direct(self.wrapper) or self.echoes())
        if self.deaf:
            logger.warning(
                "notifications don't arrive on %r (a transaction-pooling proxy?): polling instead;"
                " OPTIONS['listen_using'] may name a direct connection",
                self.listen_using,
            )
            self.close_session()
        else:
            # Else the driver would keep, for ever, what comes while something else is asked.
            self.session.add_notify_handler(lambda _: None)
            if self.failures:
                logger.info("listening again on %r", self.listen_using)
        self.failures, self.retry_at, self.heard_at = 0, 0.0, time.monotonic()

    def echoes(self) -> bool:
        """Whether a notification to ourselves arrives."""
        word = f"echo {uuid.uuid4()}"
        # From another session: a proxy passes on what a session tells itself, and nothing else.
        other = own_connection(self.listen_using)
        try:
            other.connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, word])
        finally:
            other.close()
        heard = self.session.notifies(timeout=ECHO_SECONDS)
        try:
            return any(notify.payload == word for notify in heard)
        finally:
            heard.close()

    @contextlib.contextmanager
    def mending(self) -> Iterator[None]:
        """Where the session breaks: say so once, poll meanwhile, try again with backoff."""
        try:
            yield
        except DATABASE_ERRORS as error:
            self.close_session()
            if not self.failures:
                logger.warning("the LISTEN connection on %r is gone: %s", self.listen_using, error)
            pause = min(2.0**self.failures / 4, BACKOFF_SECONDS_MAX)
            self.failures += 1
            self.retry_at = time.monotonic() + pause

    def close_session(self) -> None:
        if self.wrapper is not None:
            with contextlib.suppress(Exception):
                self.wrapper.close()
        self.session = self.wrapper = None

    def close(self) -> None:
        self.close_session()
        with self.pulling:
            bell, rope, self.bell, self.rope = self.bell, self.rope, -1, -1
        for end in (bell, rope):
            with contextlib.suppress(OSError):
                os.close(end)
