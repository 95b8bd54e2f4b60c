"""A thread's database connections between two tasks, as Django treats them between two requests.

Django's requests trust the views to leave a clean session. A task that doesn't would hand its
open transaction, or its ``search_path``, to the next task of the thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from django.db import close_old_connections, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

ALTERS_SESSION: Final = re.compile(r"\s*(SET|PRAGMA)\b|.*\bset_config\s*\(", re.IGNORECASE)


class Session:
    """The connections of the thread that makes it."""

    def __init__(self) -> None:
        self.altered: set[str] = set()
        for connection in connections.all():
            connection.execute_wrappers.append(self.watch)

    def watch(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        """Note which connections can't be used by others any more."""
        if ALTERS_SESSION.match(str(sql)):
            self.altered.add(context["connection"].alias)
        return execute(sql, params, many, context)

    def restore(self) -> None:
        """Close what was left open or was altered by the site's code, and empty the query log."""
        reset_queries()
        for connection in connections.all(initialized_only=True):
            if connection.alias in self.altered or left_open(connection):
                drop(connection)
        self.altered.clear()

    def tidy(self) -> None:
        """Close what is broken or too old, too, as Django does after a request."""
        self.restore()
        close_old_connections()


def left_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction was left behind, or autocommit off."""
    raw = connection.connection
    if raw is None:
        return False
    wanted = connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or connection.autocommit != wanted or in_transaction(raw)


def in_transaction(raw: Any) -> bool:
    """What the driver's connection *raw* says: psycopg by its status, sqlite3 by a flag."""
    try:
        if info := getattr(raw, "info", None):
            return bool(info.transaction_status)  # 0 is idle; anything else can't be used on
        return bool(getattr(raw, "in_transaction", False))
    except Exception:  # noqa: BLE001  one that can't answer is closed, or broken
        return True


def drop(connection: BaseDatabaseWrapper) -> None:
    """Close *connection* whatever state it is in; the server rolls back."""
    # close() would keep the remains of a transaction for the atomic block to find.
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()
