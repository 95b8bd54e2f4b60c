"""A worker's name: a new one, or a configured one, held by one live worker at a time.

Who holds it may take back what it had leased before: its bearer is dead. The hold has to end
with the process, however it ends. A session's lock does, where the database has one and nothing
stands between: the session is the worker's own. Elsewhere it is a record that expires unless it is
renewed; that is what a proxy gets, too, since it may hand a session to somebody else at any time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from django.db import connections
from django.db.models import Q, QuerySet

from django_leasequeue.models import WorkerName
from django_leasequeue.queue import Queue
from django_leasequeue.stores.drivers import is_direct
from django_leasequeue.wakeups import LOCK_CLASS, own_connection

from .outage import OUTAGE, Outage
from .readiness import CannotStartError

KEEP_SECONDS: Final = 2.0  # between two looks whether the name is held
EXPIRY_SECONDS: Final = 6.0  # of a record that nobody renews
RETRY_SECONDS: Final = 0.2
NAME_CLASS: Final = LOCK_CLASS + 1
# With it a server notices within half a minute, not after two hours, that a machine has gone.
ADVISORY_LOCK: Final = """
SELECT pg_try_advisory_lock(%s, %s),
       set_config('tcp_keepalives_idle', '15', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)
"""

logger = logging.getLogger("django_leasequeue")


class SessionHold:
    """A lock of the database that ends with its session, a connection of our own.

    Used by one thread at a time. ``patience`` is how long the hold of a dead worker may last.
    """

    patience = 2.0  # a server may take a moment to see that a killed process has hung up

    def __init__(self, name: str, using: str) -> None:
        self.name = name
        self.using = using
        self.session: Any = None
        self.held = False

    def take(self) -> bool:
        """Take the name, or make sure of it; False where another worker has it."""
        try:
            self.session = self.session or own_connection(self.using)
            self.held = bool(self.ask("SELECT 1") if self.held else self.lock())
        except OUTAGE:
            self.let_go()
            raise
        return self.held

    def lock(self) -> Any:
        if self.session.vendor == "postgresql":
            key = int.from_bytes(digest(self.name)[:4], signed=True)
            return self.ask(ADVISORY_LOCK, NAME_CLASS, key)
        # GET_LOCK is for the whole server and takes 64 characters.
        place = self.session.settings_dict["NAME"]
        return self.ask("SELECT GET_LOCK(%s, 0)", digest(f"leasequeue {place} {self.name}").hex())

    def ask(self, sql: str, *params: Any) -> Any:
        with self.session.cursor() as cursor:
            cursor.execute(sql, params)
            return cursor.fetchone()[0]

    def let_go(self) -> None:
        session, self.session, self.held = self.session, None, False
        if session is not None:
            with suppress(Exception):
                session.close()


class RecordHold:
    """A row that expires unless it is renewed; used as a SessionHold is."""

    patience = EXPIRY_SECONDS + 1

    def __init__(self, name: str, queue: Queue) -> None:
        self.name = name
        self.queue = queue
        self.holder = uuid.uuid4()

    def take(self) -> bool:
        # Each statement stands for itself, so that no lock outlives it: what is ours or has
        # expired is renewed, what isn't there is put there, and then we look whose it is.
        rows = self.rows()
        with self.queue.reached():
            now = self.queue.now()
            end = now + timedelta(seconds=EXPIRY_SECONDS)
            free = Q(holder=self.holder) | Q(expires_at__lte=now)
            if not rows.filter(free).update(holder=self.holder, expires_at=end):
                ours = WorkerName(name=self.name, holder=self.holder, expires_at=end)
                rows.bulk_create([ours], ignore_conflicts=True)
            return rows.filter(holder=self.holder).exists()

    def rows(self) -> QuerySet[WorkerName]:
        return WorkerName.objects.using(self.queue.using).filter(name=self.name)

    def let_go(self) -> None:
        with suppress(*OUTAGE):  # it expires
            self.rows().filter(holder=self.holder).delete()


Hold = SessionHold | RecordHold


class HeldName:
    """The name of a worker, from before its first claim until its last task has ended."""

    def __init__(self, name: str, queue: Queue, outage: Outage) -> None:
        self.name = name
        self.queue = queue
        self.outage = outage
        self.taken = False
        self.stopping = threading.Event()

    @cached_property
    def hold(self) -> Hold:
        return hold_of(self.name, self.queue)

    def take(self, stopping: threading.Event) -> bool:
        """Wait for the hold of a dead worker to end; False where the worker is to stop meanwhile.

        Raises:
            CannotStartError: a live worker has the name.
        """
        end = time.monotonic() + self.hold.patience
        while not self.hold.take():
            if time.monotonic() >= end:
                self.hold.let_go()
                raise CannotStartError(f"another live worker is named {self.name!r}")
            if stopping.wait(RETRY_SECONDS):
                self.hold.let_go()
                return False
        self.taken = True
        return True

    def run(self) -> None:
        """Until ``stop``: make sure of the name, and take it again after an outage.

        Raises:
            CannotStartError: another worker took it meanwhile.
        """
        while not self.stopping.wait(KEEP_SECONDS):
            try:
                held = self.hold.take()
            except OUTAGE as error:
                self.outage.met(error)
                continue
            if not held:
                self.hold.let_go()
                raise CannotStartError(f"another worker has taken the name {self.name!r}")
        self.hold.let_go()

    def stop(self) -> None:
        """Give the name back."""
        self.stopping.set()


def hold_of(name: str, queue: Queue) -> Hold:
    """The best hold that the queue's database has."""
    using = queue.options.listen_using or queue.using
    if connections[using].vendor in ("postgresql", "mysql"):
        session = own_connection(using)
        try:
            if is_direct(session):
                return SessionHold(name, using)
        finally:
            session.close()
        logger.info("%r goes through a proxy: the name %r is held by a record", using, name)
    return RecordHold(name, queue)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=24).digest()


def new_name() -> str:
    """A worker's name, unique per start: containers share host names and process numbers."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"
