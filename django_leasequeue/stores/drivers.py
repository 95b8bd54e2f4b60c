"""What drivers say: that a database can't be reached, or says no, and whose a session is."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from django.db import InterfaceError, InternalError, OperationalError, connections

from ..errors import QueueUnavailableError

# MariaDB's and MySQL's numbers: most of it their drivers call OperationalError.
DUPLICATE_KEY: Final = 1062
# Deadlock; "record has changed since last read".
CONFLICTS: Final = frozenset({1213, 1020})
UNAVAILABLE: Final = frozenset(
    {
        *(2002, 2003, 2005, 2006, 2012, 2013, 2026, 2055),  # not reached, or lost on the way
        *(1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 1698),  # reached, and not let in
        *(1053, 1080, 1158, 1159, 1160, 1161, 1927, 4031),  # sent away
        *(1205, 1317, 1969, 3024),  # not answered in time
        *(1290, 1792, 1836),  # read-only: the primary before a fail-over
        *(1021, 1037, 1041, 1114),  # no room left
    }
)
# What a server answers that was the primary before a fail-over, or that was kept waiting too long.
SENT_AWAY: Final = frozenset({"25006", "25P03"})


class Reached:
    """Turns the driver's words for "not to be had" into QueueUnavailableError.

    A class, because every call of a queue passes here: a generator takes four times as long.
    """

    def __init__(self, using: str) -> None:
        self.using = using

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, OperationalError | InterfaceError | InternalError):
            return
        connection = connections[self.using]
        if not unavailable(error, connection.vendor):
            return
        if connection.autocommit and isinstance(error, InternalError):
            connection.close()  # usable, but to the server that was the primary
        close_if_lost(connection)
        raise QueueUnavailableError(
            f"the queue's database {self.using!r} can't be reached: {error}"
        ) from error


def close_if_lost(connection: Any) -> None:
    """Close a session that is gone.

    One that works has what the site told it, and outside of autocommit what it did: were it closed,
    the site would go on in a new one, as if that had been committed.
    """
    if connection.connection is None or not connection.autocommit:
        return
    # Where we ask whether it is usable PyMySQL opens another one, without what Django says to each.
    if connection.vendor == "mysql" or not connection.is_usable():
        connection.close()


def unavailable(error: Exception, vendor: str) -> bool:
    """Whether *error* is about reaching the database, not about a conflict or the statement."""
    cause = error.__cause__
    if vendor == "mysql":
        return isinstance(error, InterfaceError) or number(error) in UNAVAILABLE
    if isinstance(error, InternalError):
        return getattr(cause, "sqlstate", None) in SENT_AWAY
    conflict = (getattr(cause, "sqlstate", None) or "").startswith("40")
    statement = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return not conflict and not statement


def number(error: Exception) -> int:
    """The server's or the driver's number of *error*; 0 where it has none."""
    said = error.args[0] if error.args else 0
    return said if isinstance(said, int) else 0


def is_direct(connection: Any) -> bool:
    """Whether a session of PostgreSQL or MySQL is the server's: a proxy makes up its number."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_backend_pid()")
            return bool(cursor.fetchone()[0] == connection.connection.info.backend_pid)
        cursor.execute("SELECT CONNECTION_ID()")
        return bool(cursor.fetchone()[0] == connection.connection.thread_id())
