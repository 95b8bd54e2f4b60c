"""The SQL files beside this module, run through Django's own connection."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
from django.db import ProgrammingError, connections
from psycopg.errors import InvalidSqlStatementName

FOLDER: Final = Path(__file__).parent / "sql"

PREPARE_THRESHOLD: Final = 3  # uses on one connection, before it pays

columns: Final[dict[str, list[str]]] = {}  # of each statement's answer: always the same


@cache
def statement(name: str) -> str:
    """The text of sql/*name*.sql, without the header and the comments that explain it."""
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    # Short: the driver remembers what it made of up to 4,096 characters, and works the rest out
    # anew each time.
    return "\n".join(line.strip() for line in lines if not line.lstrip().startswith("--"))


def run(using: str, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Run sql/*name*.sql in the caller's transaction, if there is one; the rows it answers."""
    given = {
        key: array_text(value) if isinstance(value, list) else value
        for key, value in parameters.items()
    }
    connection: Any = connections[using]
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw = connection.connection
    with connection.wrap_database_errors:
        direct = is_direct(raw)
    if not direct:
        with connection.cursor() as cursor:
            return answer(cursor, name, given)
    try:
        return run_prepared(connection, name, given)
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InvalidSqlStatementName):
            raise
        raw.leasequeue_direct = False  # the site throws away what is prepared here
        if connection.in_atomic_block:
            raise
    return run(using, name, parameters)


def run_prepared(connection: Any, name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a small statement's time most is planning, and writing its arguments into its text."""
    raw = connection.connection
    site_s, raw.prepare_threshold = raw.prepare_threshold, PREPARE_THRESHOLD
    try:
        with connection._prepare_cursor(psycopg.Cursor(raw)) as cursor:
            return answer(cursor, name, given)
    finally:
        raw.prepare_threshold = site_s


def answer(cursor: Any, name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    cursor.execute(statement(name), given)
    if name not in columns:
        columns[name] = [column.name for column in cursor.description]
    return [dict(zip(columns[name], row, strict=True)) for row in cursor.fetchall()]


def is_direct(raw: Any) -> bool:
    """Whether the driver's connection *raw* leads to the server itself, and may prepare there.

    A proxy hands each transaction to another session; it makes up the number of its own.
    """
    known: bool | None = vars(raw).get("leasequeue_direct")
    if known is None:
        [number] = raw.execute("SELECT pg_backend_pid()").fetchone()
        known = raw.leasequeue_direct = number == raw.info.backend_pid
    return known


def array_text(values: list[Any]) -> str:
    """*values* as PostgreSQL writes an array; the driver takes several times as long for many."""
    return "{" + ",".join([element_text(value) for value in values]) + "}"


def element_text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "NULL"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
