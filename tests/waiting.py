"""Work in another thread, and waiting for a condition instead of for luck."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from django.db import connections

from django_leasequeue.testing.conformance.threads import PATIENCE, in_thread, wait_for

__all__ = ["PATIENCE", "answered", "blocked", "blocked_sessions", "idles", "in_thread", "wait_for"]

T = TypeVar("T")

# Of this database alone: other tests run beside this one. A lock on another's transaction names no
# database, but its waiter has locked a table before.
BLOCKED: Final = """
SELECT count(DISTINCT pid)
  FROM pg_locks
 WHERE NOT granted
   AND pid <> pg_backend_pid()
   AND pid IN (SELECT pid
                 FROM pg_locks JOIN pg_database AS place ON place.oid = database
                WHERE datname = current_database())
"""
LOCK_WAIT: Final = re.compile(r"^LOCK WAIT (?:.*\n)+?\w+ thread id (\d+),", re.MULTILINE)


def blocked_sessions(using: str) -> int:
    """How many other sessions of the database *using* wait for a lock."""
    with connections[using].cursor() as cursor:
        if connections[using].vendor == "postgresql":
            cursor.execute(BLOCKED)
            return int(cursor.fetchone()[0])
        # Its counter of row lock waits is the whole server's and may be off for good, and
        # innodb_trx is a copy that grows no newer for who looks at it more than ten times a second.
        cursor.execute("SHOW ENGINE INNODB STATUS")
        transactions = cursor.fetchone()[2].rpartition("\nTRANSACTIONS\n")[2]
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = database()")
        return len({str(id) for (id,) in cursor} & set(LOCK_WAIT.findall(transactions)))


def blocked(work: Callable[[], T], using: str = "default") -> Future[T]:
    """*work*, started and now waiting for a lock that this transaction holds."""
    future = in_thread(work)
    wait_for(lambda: blocked_sessions(using) > 0 or future.done())
    assert not future.done(), f"it should have waited, but answered {future.result()}"
    return future


def idles() -> bool:
    """Whether this process has half a second in which it uses next to no processor time."""

    def spent() -> float:
        before = time.process_time()
        time.sleep(0.5)
        return time.process_time() - before

    return any(spent() < 0.1 for _ in range(5))


def answered(work: Callable[[], T]) -> T:
    """What *work* answers on another connection, without waiting for this transaction."""
    return in_thread(work).result(PATIENCE)
