"""The PostgreSQL of a run: a private one, whose commits are on disk before they are told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from example_project.bootstrap import ROOT
from example_project.devdb import USER, Cluster, DevDBError, folder_in, locked_home
from example_project.programs import all_programs, runnable

SETTINGS: Final = """
shared_buffers = 512MB
max_wal_size = 4GB
checkpoint_timeout = 15min
max_connections = 100
shared_preload_libraries = 'pg_stat_statements'
"""
COUNTERS: Final = """
SELECT pg_current_wal_lsn() - '0/0'::pg_lsn,
       coalesce((SELECT sum(calls) FROM pg_stat_statements
                  WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s)), 0)
"""
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Counters:
    wal_bytes: int
    statements: int


class Server:
    """One server, and a database of its own for each contestant."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin: Any = psycopg.connect(self.dsn("postgres"), autocommit=True)
        self.admin.execute("CREATE EXTENSION pg_stat_statements")

    @property
    def version(self) -> str:
        return self.cluster.programs.version

    def dsn(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.cluster.folder}"

    def environment(self, database: str) -> dict[str, str]:
        place = {"PGHOST": str(self.cluster.folder), "PGUSER": USER, "PGDATABASE": database}
        return place | {"BENCH_DSN": self.dsn(database)}

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        self.admin.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def settle(self, database: str) -> None:
        """As between two bursts of a day: analysed, and nothing left to write."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def counters(self, database: str) -> Counters:
        wal, statements = self.admin.execute(COUNTERS, [database]).fetchone()
        return Counters(int(wal), int(statements))

    def cpu_seconds(self) -> float:
        assert self.cluster.process
        return cpu_seconds(self.cluster.process.pid)


@contextmanager
def server() -> Iterator[Server]:
    """The newest PostgreSQL there is, started anew and removed at the end.

    Raises:
        DevDBError: there is none, or it doesn't start.
    """
    found = sorted(all_programs(), key=lambda programs: programs.major)
    if not found:
        raise DevDBError("No PostgreSQL was found.")
    with locked_home(ROOT) as home:
        folder = folder_in(home, found[-1], keep=False)
        # "keep" leaves fsync and its like on; what is kept is removed below.
        cluster = Cluster(folder, runnable(found[-1], home), keep=True)
    try:
        cluster.initialise()
        with (cluster.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)
        cluster.start()
        yield Server(cluster)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def busy_seconds() -> float:
    """What all processes of the machine have used so far, and what its host took away."""
    user, nice, system, _idle, _waiting, *others = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    return (user + nice + system + sum(others)) / TICKS


def cpu_seconds(root: int) -> float:
    """What the process and its descendants have used so far, the buried ones included."""
    family, total = {root}, 0.0
    processes = sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    for pid in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if pid in family or int(fields[1]) in family:
            family.add(pid)
            total += sum(map(int, fields[11:15])) / TICKS
    return total
