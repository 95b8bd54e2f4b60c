"""Telling a database that can't be reached from one that says no."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import InterfaceError, InternalError, OperationalError, connections

from ..errors import QueueUnavailableError
from .mysql import UNAVAILABLE, number

READ_ONLY: Final = "25006"  # what a server answers that was the primary before a fail-over


@contextmanager
def reached(using: str) -> Iterator[None]:
    """Turn the driver's words for "not to be had" into QueueUnavailableError."""
    try:
        yield
    except (OperationalError, InterfaceError, InternalError) as error:
        connection = connections[using]
        if not unavailable(error, connection.vendor):
            raise
        if not connection.in_atomic_block:
            if isinstance(error, InternalError):
                connection.close()  # usable, but to the server that was the primary
            connection.close_if_unusable_or_obsolete()
        raise QueueUnavailableError(
            f"the queue's database {using!r} can't be reached: {error}"
        ) from error


def unavailable(error: Exception, vendor: str) -> bool:
    """Whether *error* is about reaching the database, not about a conflict or the statement."""
    cause = error.__cause__
    if vendor == "mysql":
        return isinstance(error, InterfaceError) or number(error) in UNAVAILABLE
    if isinstance(error, InternalError):
        return getattr(cause, "sqlstate", None) == READ_ONLY
    conflict = (getattr(cause, "sqlstate", None) or "").startswith("40")
    statement = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return not conflict and not statement
