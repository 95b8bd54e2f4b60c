"""System checks: what of a site's settings the queue can't work with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .conf import Options, backends, broken_backends, parse
from .stores import lack_of_skip_locked


@register()
def check_backends(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """The OPTIONS and QUEUES of our backends, and their databases' settings."""
    for alias, why in broken_backends():
        yield Error(f"TASKS[{alias!r}]: {why}", id="leasequeue.E001")
    for alias, config in backends():
        try:
            options = parse(alias, config)
        except ImproperlyConfigured as error:
            yield Error(str(error), id="leasequeue.E001")
        else:
            yield from check_databases(alias, options)


def check_databases(alias: str, options: Options) -> Iterator[CheckMessage]:
    for option, using in (("using", options.using), ("listen_using", options.listen_using)):
        if using is not None and using not in connections:
            yield Error(
                f"TASKS[{alias!r}]: OPTIONS[{option!r}] is {using!r}, which is not in DATABASES",
                id="leasequeue.E002",
            )
    if options.using in connections:
        yield from check_transactions(connections[options.using])


def check_transactions(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or ""
    if connection.vendor == "sqlite" and mode.upper() != "IMMEDIATE":
        setting = f"DATABASES[{connection.alias!r}]['OPTIONS']"
        yield Error(
            f"The queue's database {connection.alias!r} is SQLite without IMMEDIATE transactions: "
            "one that began by reading would be refused when it goes on to write",
            hint=f"{setting} = {{'transaction_mode': 'IMMEDIATE'}}",
            id="leasequeue.E003",
        )


@register(Tags.database)
def check_locking(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """Whether claims can step over locked rows; asks the server, so only where Django may."""
    with suppress(ImproperlyConfigured):  # check_backends says what is wrong
        for alias, config in backends():
            using = parse(alias, config).using
            if using in (databases or ()):
                yield from check_skip_locked(connections[using])


def check_skip_locked(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if lack := lack_of_skip_locked(connection):
        yield Error(lack, hint="MariaDB 10.6 has it, and MySQL 8.0.1.", id="leasequeue.E004")
