"""One module each: who takes part, by its own public interface, as its documentation has it.

``PACKAGES`` (whose versions are told), ``prepare()`` the tables, ``empty()`` them, ``enqueue(n)``,
perhaps ``enqueue_many(ns)``, and ``workers(processes)``: the arguments of Python that start them.
The database is in BENCH_DSN, and in PGHOST, PGUSER and PGDATABASE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who takes part.

    Args:
        name: as the report has it.
        module: here.
        requires: packages of its environment; none: it runs in ours.
        tasks: how many a drain takes: some seconds' work.
        program: that has to be there besides.
        variables: of its environment.
    """

    name: str
    module: str
    requires: tuple[str, ...] = ()
    tasks: int
    program: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


SITE: Final = {"DJANGO_SETTINGS_MODULE": "benchmarks.contestants.site"}
EVERYBODY: Final = [
    Contestant(name="django-leasequeue", module="leasequeue", tasks=50_000, variables=SITE),
    Contestant(
        name="pgqueuer",
        module="with_pgqueuer",
        requires=("pgqueuer[asyncpg]", "uvloop"),
        tasks=50_000,
    ),
    Contestant(
        name="procrastinate",
        module="with_procrastinate",
        requires=("procrastinate", "psycopg[binary]"),
        tasks=2_000,
    ),
    Contestant(
        name="django-tasks-db",
        module="with_django_tasks_db",
        requires=("Django", "django-tasks-db", "psycopg[binary]"),
        tasks=1_200,
        variables=SITE | {"BENCH_BACKEND": "django_tasks_db.DatabaseBackend"},
    ),
    Contestant(
        name="celery + redis",
        module="with_celery",
        requires=("celery[redis]",),
        tasks=3_000,
        program="redis-server",
    ),
    Contestant(name="raw SQL", module="raw", tasks=50_000),
]
