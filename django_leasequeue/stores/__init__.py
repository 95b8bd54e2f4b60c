"""Which store serves a database."""

from __future__ import annotations

from django.db import connections

from .base import Clock, Store


def store_for(using: str, clock: Clock | None = None) -> Store:
    """The store for the database alias *using*.

    Imported when asked for: a site on SQLite needs no psycopg.
    """
    if connections[using].vendor == "postgresql":
        from .postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(using, clock)
    from .portable import PortableStore  # noqa: PLC0415

    return PortableStore(using, clock)
