"""The server, its proxy, and the processes that work through it: started, counted, ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from example_project import devdb
from tests.chaos.proxy import Proxy

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = "tests.chaos.settings"
ROLE: Final = "site"  # as the documented grants call it
RIGHTS: Final = (ROOT / "docs/production.md").read_text()
GRANTS: Final = re.findall(r"```sql\n(.*?)```", RIGHTS, re.DOTALL)
# The ways of working, by turns.
WAYS: Final[Sequence[Sequence[str]]] = (
    ["--strict"],
    ["--async-tasks", "5"],
    ["--processes", "2", "--max-tasks-per-child", "50"],
    ["--async-tasks", "20", "--max-tasks", "200"],
    [],
)
CLIENT: Final = "import django; django.setup(); from tests.chaos.load import main; main()"


@dataclass
class Member:
    """A process that is started anew whenever it ends, as a supervisor would."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    statuses: Counter[int] = field(default_factory=Counter)
    stopped: bool = False  # by SIGSTOP

    def is_at_work(self) -> bool:
        """Whether it has said so since this run began."""
        return self.log.exists() and "started" in self.log.read_text()

    def start(self) -> None:
        environment = self.environment | {"CHAOS_START": str(self.statuses.total())}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=log, stderr=log,
                preexec_fn=devdb.at_parents_death(signal.SIGKILL),
            )  # fmt: skip

    def supervise(self) -> None:
        """Start it where it isn't running."""
        if self.process is None or self.ended():
            self.start()

    def ended(self) -> bool:
        status = self.process.poll() if self.process else None
        if status is None:
            return False
        self.statuses[status] += 1
        self.process, self.stopped = None, False
        return True

    def send(self, signum: signal.Signals) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signum)
            self.stopped = signum == signal.SIGSTOP

    def stop(self, seconds: float) -> int:
        """End it in good order; by force after *seconds*."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self.process is None:
            return 0
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Stage:
    """Where it all happens. Everything of it lies in *folder*, and goes with it."""

    def __init__(self, cluster: devdb.Cluster, proxy: Proxy, folder: Path, seed: int) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.folder = folder
        self.seed = seed
        self.workers: list[Member] = []
        self.clients: list[Member] = []
        self.lock = threading.Lock()  # one restart at a time

    @property
    def owner(self) -> str:
        return f"host={self.cluster.folder} port=5432 user={devdb.USER} dbname=postgres"

    @property
    def direct_url(self) -> str:
        return f"postgres://{ROLE}@:5432/{self.cluster.folder}/postgres"

    @property
    def proxied_url(self) -> str:
        return f"postgres://{ROLE}@127.0.0.1:{self.proxy.port}/postgres"

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the server answers its owner; waits for one that recovers from a fault."""
        self.cluster.wait_until_ready()
        with psycopg.connect(self.owner, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def environment(self, url: str) -> dict[str, str]:
        ours = {"DJANGO_SETTINGS_MODULE": SETTINGS, "DATABASE_URL": url}
        return os.environ | ours | {"CHAOS_FOLDER": str(self.folder), "PGAPPNAME": "chaos"}

    def member(self, name: str, command: Sequence[str], url: str) -> Member:
        log = self.folder / f"{name}.log"
        return Member(name, [sys.executable, *command], self.environment(url), log)

    def add_workers(self, count: int) -> None:
        """By turns: directly or through the proxy, with a name or without, in one of the ways; the
        last one on the queue that forgets."""
        for number in range(1, count + 1):
            name, last = f"w{number}", number == count > 1
            command = ["-m", "django", "leasequeue_worker", "--threads", "3", "--grace", "3"]
            command += ["--backend", "brief" if last else "default"]
            command += ["--name", name] if number % 2 else []
            command += WAYS[(number - 1) % len(WAYS)]
            url = self.direct_url if number in (1, 4) else self.proxied_url
            self.workers.append(self.member(name, command, url))

    def add_clients(self, count: int, per_second: float) -> None:
        for number in range(1, count + 1):
            command = ["-c", CLIENT, str(self.seed), str(number), str(per_second / count)]
            url = self.proxied_url if number % 2 else self.direct_url
            self.clients.append(self.member(f"client{number}", command, url))

    @property
    def everybody(self) -> list[Member]:
        return [*self.workers, *self.clients]

    def supervise(self) -> None:
        for member in self.everybody:
            member.supervise()

    def said_in_logs(self, pattern: str) -> Iterator[str]:
        """The lines of the workers' and clients' logs that say so."""
        for path in sorted(self.folder.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if re.search(pattern, line):
                    yield f"{path.name}: {line}"

    def restart(self, *, away: float = 0) -> None:
        """As ``pg_ctl restart -m immediate`` does: without a checkpoint, mid-transaction."""
        with self.lock:
            process = self.cluster.process
            assert process is not None
            process.send_signal(signal.SIGQUIT)
            process.wait()
            threading.Event().wait(away)
            self.cluster.start()


@contextmanager
def staged(seed: int) -> Iterator[Stage]:
    """A server with what its owner has to make, a proxy, and no process yet."""
    folder = Path(tempfile.mkdtemp(prefix="leasequeue-chaos-"))
    # Kept, because what it answered to a commit is to be true.
    cluster = devdb.start(folder, keep=True)
    proxy = Proxy(cluster.folder / ".s.PGSQL.5432", seed)
    stage = Stage(cluster, proxy, folder, seed)
    try:
        # Processes die here, never the machine: what was written is there without a sync, which
        # would make each of the many restarts take seconds.
        stage.sql("ALTER SYSTEM SET fsync = off")
        stage.sql("SELECT pg_reload_conf()")
        yield stage
    finally:
        for member in stage.everybody:
            member.send(signal.SIGKILL)
        proxy.close()
        cluster.close()
        shutil.rmtree((folder / ".devdb").resolve(), ignore_errors=True)
        shutil.rmtree(folder)
