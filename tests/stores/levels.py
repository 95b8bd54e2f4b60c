"""Isolation levels that a site may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import connections

LEVELS: Final = ("read committed", "repeatable read")


@contextmanager
def isolated(using: str, level: str) -> Iterator[None]:
    """Every session inside is opened as by a site that asks for *level*."""
    options = connections[using].settings_dict["OPTIONS"]
    before = dict(options)
    options["isolation_level"] = level
    if connections[using].vendor == "postgresql":
        from psycopg import IsolationLevel  # noqa: PLC0415

        options["isolation_level"] = IsolationLevel[level.upper().replace(" ", "_")]
    connections[using].close()
    try:
        yield
    finally:
        connections[using].close()
        options.clear()
        options.update(before)
