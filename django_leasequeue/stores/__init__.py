"""Which store serves a database."""

from __future__ import annotations

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from .base import Clock, Store


def lack_of_skip_locked(connection: BaseDatabaseWrapper) -> str:
    """What to say of a database whose claims would wait for each other; empty where they don't."""
    # SQLite has one writer at a time: there is no locked row to step over.
    if connection.vendor == "sqlite" or connection.features.has_select_for_update_skip_locked:
        return ""
    version = ".".join(map(str, connection.get_database_version()))
    server = f"{connection.display_name} {version}"
    return f"The queue's database {connection.alias!r}, {server}, has no SKIP LOCKED"


def pending_migrations(using: str) -> list[str]:
    """Those of our own that *using* lacks: its tables aren't those that this code works with."""
    loader = MigrationLoader(connections[using])
    ours = {node for node in loader.graph.nodes if node[0] == "leasequeue"}
    return sorted(name for _, name in ours - loader.applied_migrations.keys())


def store_for(using: str, clock: Clock | None = None) -> Store:
    """The store for the database alias *using*.

    Imported when asked for: a site on SQLite needs no psycopg.
    """
    if connections[using].vendor == "postgresql":
        from .postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(using, clock)
    from .portable import PortableStore  # noqa: PLC0415

    return PortableStore(using, clock)
