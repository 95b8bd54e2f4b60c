"""The SQL files beside this module, run through Django's own connection."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from django.db import connections

FOLDER: Final = Path(__file__).parent / "sql"

columns: Final[dict[str, list[str]]] = {}  # of each statement's answer: always the same


@cache
def statement(name: str) -> str:
    """The text of sql/*name*.sql, without the header and the comments that explain it."""
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))


def run(using: str, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Run sql/*name*.sql in the caller's transaction, if there is one; the rows it answers."""
    given = {
        key: array_text(value) if isinstance(value, list) else value
        for key, value in parameters.items()
    }
    with connections[using].cursor() as cursor:
        cursor.execute(statement(name), given)
        if name not in columns:
            columns[name] = [column.name for column in cursor.description]
        return [dict(zip(columns[name], row, strict=True)) for row in cursor.fetchall()]


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
