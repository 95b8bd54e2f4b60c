"""System checks: what of a site's settings the queue can't work with."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Tags, Warning as Doubt, register
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as Unreached, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from .conf import Options, backends, broken_backends, parse, queues_of
from .models import Task
from .policy import QueuePolicy
from .stores import lack_of_skip_locked, pending_migrations
from .stores.drivers import is_direct

VISIBILITY_SECONDS_MIN: Final = 3.0


@register()
def check_backends(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """The OPTIONS and QUEUES of our backends, and their databases' settings."""
    useless = {"hint": "Whatever uses it raises until it is put right.", "id": "leasequeue.E001"}
    for alias, why in broken_backends():
        yield Error(f"TASKS[{alias!r}]: {why}", **useless)
    for alias, config in backends():
        try:
            options = parse(alias, config)
        except ImproperlyConfigured as error:
            yield Error(str(error), **useless)
        else:
            yield from check_databases(alias, options)
            yield from check_policies(alias, options)
    with suppress(ImproperlyConfigured):
        yield from check_names()


def check_names() -> Iterator[CheckMessage]:
    """One queue that two backends serve in one database has the limits of the first one alone."""
    serving: dict[tuple[str, str], list[str]] = defaultdict(list)
    for alias, config in backends():
        for queue in queues_of(alias, config):
            serving[parse(alias, config).using, queue].append(alias)
    for (using, queue), aliases in serving.items():
        if len(aliases) > 1:
            twice = ", ".join(f"TASKS[{alias!r}]" for alias in aliases)
            yield Doubt(
                f"The queue {queue!r} in the database {using!r} is named more than once: {twice}",
                hint="Only the first one's OPTIONS count for it. Name it once.",
                id="leasequeue.W001",
            )


def check_policies(alias: str, options: Options) -> Iterator[CheckMessage]:
    """What can be said, but is hardly meant."""
    said = f"TASKS[{alias!r}]['OPTIONS']"
    policies = {f"{said}['policy']": options.policy}
    policies |= {f"{said}['queues'][{queue!r}]": its for queue, its in options.queues.items()}
    for place, policy in policies.items():
        yield from check_visibility(place, policy)
        yield from check_backoff(place, policy)
        if options.using in connections:
            yield from check_timeouts(place, policy, connections[options.using])


def check_visibility(place: str, policy: QueuePolicy) -> Iterator[CheckMessage]:
    if policy.visibility < VISIBILITY_SECONDS_MIN:
        yield Doubt(
            f"{place}: a visibility of {policy.visibility:g} s leaves a heartbeat "
            f"{policy.visibility * 2 / 3:.1f} s: it is sent after a third of it",
            hint="A pause of the worker or the database that is longer has the task done twice.",
            id="leasequeue.W002",
        )


def check_backoff(place: str, policy: QueuePolicy) -> Iterator[CheckMessage]:
    if policy.max_attempts > 1 and policy.backoff_cap < policy.backoff_base:
        yield Doubt(
            f"{place}: backoff_cap ({policy.backoff_cap:g}) is below backoff_base "
            f"({policy.backoff_base:g}), which no retry waits then",
            hint="A retry waits min(cap, base * factor ** (attempt - 1)) seconds.",
            id="leasequeue.W003",
        )


def check_timeouts(
    place: str, policy: QueuePolicy, connection: BaseDatabaseWrapper
) -> Iterator[CheckMessage]:
    """How long a call may hang before it fails; while it does, no lease is renewed."""
    option = "timeout" if connection.vendor == "sqlite" else "connect_timeout"
    seconds = connection.settings_dict["OPTIONS"].get(option)
    if isinstance(seconds, int | float) and seconds >= policy.visibility:
        yield Doubt(
            f"DATABASES[{connection.alias!r}]['OPTIONS'][{option!r}] is {seconds:g}: a worker may "
            f"wait longer than a lease lasts, {policy.visibility:g} s by {place}",
            hint="Make it less than a third of the visibility.",
            id="leasequeue.W004",
        )


def check_databases(alias: str, options: Options) -> Iterator[CheckMessage]:
    for option, using in (("using", options.using), ("listen_using", options.listen_using)):
        if using is not None and using not in connections:
            yield Error(
                f"TASKS[{alias!r}]: OPTIONS[{option!r}] is {using!r}, which is not in DATABASES",
                hint=f"DATABASES has {', '.join(connections)}.",
                id="leasequeue.E002",
            )
    if options.using in connections:
        yield from check_transactions(connections[options.using])
        yield from check_routers(options.using)
    for other in connections.settings:
        if other != options.using and connections[other].settings_dict["ATOMIC_REQUESTS"]:
            yield Doubt(
                f"DATABASES[{other!r}] has ATOMIC_REQUESTS, and the queue of TASKS[{alias!r}] is "
                f"in another database, {options.using!r}: what a view enqueues is not part of the "
                "request's transaction",
                hint="A task may run before the data it is about is committed, or though it never "
                "is. Enqueue in transaction.on_commit(), or keep the queue with the data.",
                id="leasequeue.W005",
            )


def check_routers(using: str) -> Iterator[CheckMessage]:
    if not router.allow_migrate_model(using, Task):
        yield Doubt(
            f"DATABASE_ROUTERS let no migration make the queue's tables in {using!r}",
            hint="Let allow_migrate() answer True for 'leasequeue' there.",
            id="leasequeue.W008",
        )


def check_transactions(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if not connection.settings_dict["AUTOCOMMIT"]:
        yield Error(
            f"The queue's database {connection.alias!r} has AUTOCOMMIT off: a worker would run "
            "the same tasks again and again, since nobody commits that it has them",
            hint="OPTIONS['using'] may name another alias of the same database, without it.",
            id="leasequeue.E005",
        )
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
def check_servers(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """What only the server knows; it is asked only where Django may."""
    with suppress(ImproperlyConfigured):  # check_backends says what is wrong
        asked = {alias: parse(alias, config) for alias, config in backends()}
        asked = {a: options for a, options in asked.items() if options.using in (databases or ())}
        for using in dict.fromkeys(options.using for options in asked.values()):
            with suppress(Unreached):  # Django says so itself
                yield from check_skip_locked(connections[using])
                yield from check_migrations(using)
        for alias, options in asked.items():
            with suppress(Unreached):
                yield from check_listening(alias, options)


def check_skip_locked(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if lack := lack_of_skip_locked(connection):
        yield Error(lack, hint="MariaDB 10.6 has it, and MySQL 8.0.1.", id="leasequeue.E004")


def check_listening(alias: str, options: Options) -> Iterator[CheckMessage]:
    using = options.listen_using or options.using
    if using not in connections:
        return  # check_databases says so
    listening = connections[using]
    if listening.vendor == "postgresql" and not is_direct(listening):
        yield Doubt(
            f"TASKS[{alias!r}]: notifications don't arrive through {listening.alias!r}, a "
            f"transaction-pooling proxy it seems: workers look every {options.poll_interval:g} s",
            hint="OPTIONS['listen_using'] may name a direct connection.",
            id="leasequeue.W006",
        )


def check_migrations(using: str) -> Iterator[CheckMessage]:
    if sys.argv[1:2] == ["migrate"]:
        return  # that is what is about to be done
    if pending := pending_migrations(using):
        yield Doubt(
            f"The queue's tables in {using!r} are not up to date: {', '.join(pending)}",
            hint=f"manage.py migrate leasequeue --database {using}",
            id="leasequeue.W007",
        )
