"""A thread's database connections between two tasks, as Django treats them between two requests.

Django's requests trust the views to leave a clean session. A task that doesn't would hand its
open transaction, its ``search_path`` or its locks to the next task of the thread.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from django.db import Error, close_old_connections, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

# What a statement begins with, behind a comment or another statement too; or what it calls.
ALTERS_SESSION: Final = re.compile(
    r"(?:\A|;)(?:\s|/\*.*?\*/|(?:--|\#)[^\n]*(?:\n|\Z))*"
    r"(?:SET|RESET|PRAGMA|ATTACH|USE|LOCK|LISTEN|PREPARE|CREATE\s+(?:OR\s+REPLACE\s+)?TEMP\w*)\b"
    r"|\b(?:set_config|get_lock|pg_(?:try_)?advisory_lock\w*)\s*\(",
    re.IGNORECASE | re.DOTALL,
)
BEGINS: Final = re.compile(r"\s*(?:BEGIN|START)\b", re.IGNORECASE)  # on SQLite Django's own word
AUTHORIZED: Final = frozenset(
    {
        sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)
# One round trip, 0.2 ms; a new connection takes 7. Not DISCARD ALL: it would also drop what the
# driver, or a proxy for its other clients, has prepared. RESET goes back to what the connection
# was opened with, so that only what Django sets later has to be said again.
RESET: Final = """
CLOSE ALL; UNLISTEN *; RESET SESSION AUTHORIZATION; RESET ALL; DISCARD TEMP; DISCARD SEQUENCES;
SELECT pg_advisory_unlock_all(), set_config('TimeZone', %s, false), set_config('role', %s, false);
SELECT NOT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)
"""


@lru_cache(maxsize=256)  # the same few mostly, of a few thousand characters each
def alters(vendor: str, sql: str) -> bool:
    """Whether *sql* leaves something behind that outlives its statement."""
    begins = vendor == "mysql" and BEGINS.match(sql)
    return bool(begins or ALTERS_SESSION.search(sql))


class Session:
    """The connections of the thread that makes it, where the site's receivers of signals run.

    They are closed where something was said through Django that outlives its statement.
    """

    def __init__(self) -> None:
        self.altered: set[str] = set()
        self.thread = threading.get_ident()
        connection_created.connect(self.opened)
        self.connections = connections.all()
        for connection in self.connections:
            connection.execute_wrappers.append(self.watch)

    def watch(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        """Note which connections can't be used by others any more."""
        connection = context["connection"]
        if alters(connection.vendor, str(sql)):
            self.altered.add(connection.alias)
        return execute(sql, params, many, context)

    watch.passes_ours = True  # type: ignore[attr-defined]  # the queue's statements alter nothing

    def opened(self, connection: Any, **_: Any) -> None:
        """What Django itself says to a new connection (MySQL's, say) alters nothing."""
        if threading.get_ident() == self.thread:
            self.altered.discard(connection.alias)

    def restore(self) -> None:
        """Close what was left open or was altered by the site's code, and empty the query log."""
        if not self.used():
            return
        reset_queries()
        for connection in self.connections:
            if left_open(connection) or not self.is_clean(connection):
                drop(connection)
        self.altered.clear()

    def tidy(self) -> None:
        """Close what is broken or too old, too, as Django does after a request."""
        if self.used():
            self.restore()
            close_old_connections()

    def used(self) -> bool:
        """Whether there is anything to look after: most tasks are over in microseconds."""
        return any(
            connection.connection is not None
            or connection.queries_log
            or connection.in_atomic_block
            for connection in self.connections
        )

    def is_clean(self, connection: BaseDatabaseWrapper) -> bool:
        return connection.alias not in self.altered


class TaskSession(Session):
    """The connections of a thread that runs tasks: what these leave behind is found for certain.

    However it was said: PostgreSQL's sessions are put back, SQLite tells of each statement.
    Elsewhere only what goes through Django's own cursors is seen.
    """

    def opened(self, connection: Any, **_: Any) -> None:
        """Let SQLite tell what a statement means when it is prepared; of Django's own it told."""
        super().opened(connection)
        if connection.vendor == "sqlite" and threading.get_ident() == self.thread:
            altered, alias = self.altered, connection.alias

            def authorize(action: int, *_: Any) -> int:
                if action in AUTHORIZED:
                    altered.add(alias)
                return sqlite3.SQLITE_OK

            connection.connection.set_authorizer(authorize)

    def is_clean(self, connection: BaseDatabaseWrapper) -> bool:
        if connection.vendor == "postgresql":
            return not is_kept(connection) or is_untouched(connection) or reset(connection)
        return super().is_clean(connection)


def is_kept(connection: Any) -> bool:
    """Whether the next task would have the same session: Django closes the others."""
    return bool(connection.settings_dict["CONN_MAX_AGE"] != 0 or connection.pool)


def is_untouched(connection: BaseDatabaseWrapper) -> bool:
    """Whether the driver's connection hasn't been used since ``reset``."""
    return connection.connection is None or "wait" in vars(connection.connection)


def reset(connection: Any) -> bool:
    """Put a session of PostgreSQL back to how it was opened; whether that went through."""
    raw = connection.connection
    own = [connection.timezone_name, connection.settings_dict["OPTIONS"].get("assume_role")]
    try:
        answer = raw.execute(connection.ops.compose_sql(RESET, own), prepare=False)
        while answer.nextset():
            pass
        [clean] = answer.fetchone()
        if type(connection).rollback is not BaseDatabaseWrapper.rollback:
            connection.rollback()  # by which it forgets what it has SET, a tenant's search_path
        # Whoever sets up each new connection of the site's does so here, too.
        connection_created.send(type(connection), connection=connection)
    except Exception:  # noqa: BLE001  whatever it was, a new connection doesn't have it
        return False

    def wait(*args: Any, **kwargs: Any) -> Any:
        """Stand in for the driver's, which every use comes to, until the first one."""
        del raw.wait
        return raw.wait(*args, **kwargs)

    raw.wait = wait
    return bool(clean)


def left_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction was left behind, or autocommit off."""
    raw = connection.connection
    if raw is None:
        return False
    wanted = connection.settings_dict["AUTOCOMMIT"]
    changed = connection.autocommit != wanted
    return connection.in_atomic_block or changed or in_transaction(raw, wanted)


def in_transaction(raw: Any, autocommit: bool) -> bool:
    """What the driver's connection *raw* says; mysqlclient's says nothing, see ``BEGINS``."""
    try:
        if (status := getattr(getattr(raw, "info", None), "transaction_status", None)) is not None:
            # psycopg: 0 is idle; anything else can't be used on.
            return bool(status) or raw.autocommit != autocommit
        # MySQL's drivers refuse to close what is closed; PyMySQL knows the status, sqlite3 a flag.
        in_doubt = not getattr(raw, "open", True) or getattr(raw, "server_status", 0) & 1
        return bool(in_doubt or getattr(raw, "in_transaction", False))
    except Exception:  # noqa: BLE001  one that can't answer is closed, or broken
        return True


def drop(connection: Any) -> None:
    """Close *connection* whatever state it is in; the server rolls back."""
    # close() would keep the remains of a transaction for the atomic block to find, and a pool's
    # connection would only go back to the pool.
    connection.in_atomic_block = connection.closed_in_transaction = False
    if connection.connection is not None and getattr(connection, "pool", None):
        connection.connection.close()
    with suppress(Error):  # it may be closed already
        connection.close()
