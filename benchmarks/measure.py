"""The measurements: what is asked of each contestant, and how the answers become figures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from benchmarks import marks
from benchmarks.contestants import Contestant
from benchmarks.environments import python_of
from benchmarks.server import Server, busy_seconds, cpu_seconds
from example_project.bootstrap import ROOT

ONE_BY_ONE: Final = 1_500
BULK: Final = 30_000
PICK_UPS: Final = 100
COMPUTING: Final = 400
PATIENCE_SECONDS: Final = 90.0
IDLE_SECONDS: Final = 1.5  # until a worker without work sleeps
STOP_SECONDS: Final = 5.0

Figures = dict[str, float]
Workers = list[subprocess.Popen[Any]]


class NotMeasuredError(Exception):
    """A contestant doesn't take part, or gave up; the message says why."""


@dataclass
class Answers:
    """What one contestant has shown; rates are tasks a second."""

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    problem: str = ""


class Booth:
    """Where one contestant is measured: its database, its environment, its client.

    Args:
        environment: variables that it needs besides.
        scale: of its work; below 1 to try the harness.
    """

    def __init__(
        self,
        contestant: Contestant,
        server: Server,
        database: str,
        folder: Path,
        environment: dict[str, str],
        scale: float,
    ) -> None:
        self.contestant = contestant
        self.server = server
        self.database = database
        self.marks = folder
        self.log = folder / "workers.log"
        self.scale = scale
        self.python = python_of(contestant)
        self.environment = (
            {name: value for name, value in os.environ.items() if not name.startswith("PG")}
            | server.environment(database)
            | {marks.FOLDER: str(folder), "PYTHONPATH": str(ROOT)}
            | dict(contestant.variables)
            | environment
        )
        self.client = self.popen(
            [self.python, "-m", "benchmarks.client", contestant.module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(
            command, cwd=self.marks, env=self.environment, start_new_session=True, **options
        )

    def ask(self, verb: str, *numbers: int) -> Any:
        """What the client answers.

        Raises:
            NotMeasuredError: it has died instead.
        """
        with suppress(BrokenPipeError):
            self.client.stdin.write(f"{verb} {' '.join(map(str, numbers))}\n")  # type: ignore[union-attr]
            self.client.stdin.flush()  # type: ignore[union-attr]
        for line in self.client.stdout or ():
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise NotMeasuredError(f"it failed to {verb}")

    def scaled(self, count: int) -> int:
        return max(10, int(count * self.scale))

    def close(self) -> None:
        end(self.client)

    # The measurements

    def enqueue(self) -> Figures:
        count = self.scaled(ONE_BY_ONE)
        self.ask("enqueue", count // 10)
        return {"enqueue": count / self.ask("enqueue", count)}

    def bulk(self) -> Figures:
        count = self.scaled(BULK)
        self.ask("empty")
        seconds = self.ask("enqueue_many", count)
        return {"bulk": count / seconds} if seconds else {}

    def drain(self, processes: int) -> Figures:
        """Fill, start the workers, look at when each task began."""
        count = self.scaled(self.contestant.tasks)
        self.ready_for("fill", count)
        before = self.server.counters(self.database)
        with self.working(processes) as workers:
            self.wait_for_marks(1, workers)
            begun = Spent.now(self, workers)
            self.wait_for_marks(count, workers)
            spent = Spent.now(self, workers).less(begun)
            time.sleep(0.3)  # for the last finishes
            after = self.server.counters(self.database)
        suffix = str(processes)
        figures = {"drain" + suffix: self.rate(processes)}
        if processes == 1:
            figures["cpu_worker_us"] = spent.worker / spent.tasks * 1e6
        if processes == 1 and not self.contestant.program:
            figures |= {
                "cpu_server_us": spent.server / spent.tasks * 1e6,
                "others": max(0.0, spent.machine - spent.worker - spent.server) / spent.seconds,
                "wal_bytes": (after.wal_bytes - before.wal_bytes) / count,
                "statements": (after.statements - before.statements) / count,
            }
        return figures

    def computing(self, processes: int) -> Figures:
        """Tasks that compute, and beside them the same work in processes without a queue."""
        count = self.scaled(COMPUTING)
        command = [self.python, "-m", "benchmarks.computing", str(count // 4)]
        bare = [self.popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
        seconds = max(float(process.communicate()[0]) for process in bare)
        self.ready_for("fill_computing", count)
        with self.working(processes) as workers:
            self.wait_for_marks(count, workers)
        return {
            f"computing{processes}": self.rate(processes),
            f"bare{processes}": processes * (count // 4) / seconds,
        }

    def pick_up(self) -> Figures:
        """From the return of an enqueue to the begin of its task, in an idle worker."""
        count = self.scaled(PICK_UPS)
        self.ready_for("fill", 1)
        with self.working(1) as workers:
            self.wait_for_marks(1, workers)
            time.sleep(IDLE_SECONDS)
            enqueued = self.ask("trickle", count)
            self.wait_for_marks(1 + count, workers)
        begun = {number: at for process in marks.read(self.marks) for number, at in process}
        waited = [begun[number] - at for number, at in enqueued]
        cuts = quantiles(waited, n=100, method="inclusive")
        return {"pick_up_p50_ms": cuts[49] * 1000, "pick_up_p99_ms": cuts[98] * 1000}

    def ready_for(self, verb: str, count: int) -> None:
        self.ask("empty")
        self.ask(verb, count)
        self.server.settle(self.database)
        marks.clear(self.marks)

    @contextmanager
    def working(self, processes: int) -> Iterator[Workers]:
        """Workers, in as many processes together."""
        commands = self.ask("workers", processes)
        with self.log.open("w") as log:
            quiet = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            workers = [self.popen(command, **quiet) for command in commands]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                end(worker)

    def wait_for_marks(self, count: int, workers: Workers) -> None:
        patience = time.monotonic() + PATIENCE_SECONDS
        while marks.count(self.marks) < count:
            dead = any(worker.poll() is not None for worker in workers)
            if dead or time.monotonic() > patience:
                print(self.log.read_text()[-2000:])
                raise NotMeasuredError(f"{marks.count(self.marks)} of {count} tasks ran")
            time.sleep(0.01)

    def rate(self, processes: int) -> float:
        """Tasks a second, from when the last process has begun its first one.

        Raises:
            NotMeasuredError: a task ran twice, or the first process left nothing to the others.
        """
        noted = [process for process in marks.read(self.marks) if process]
        numbers = [number for process in noted for number, _ in process]
        if len(numbers) != len(set(numbers)):
            raise NotMeasuredError(f"{len(numbers) - len(set(numbers))} tasks ran twice")
        begun = max(process[0][1] for process in noted)
        times = sorted(at for process in noted for _, at in process if at >= begun)
        if len(noted) < processes or len(times) < len(numbers) / 4:
            raise NotMeasuredError(f"the tasks were over before {processes} processes had begun")
        return (len(times) - 1) / (times[-1] - begun)


@dataclass(frozen=True)
class Spent:
    """CPU seconds, seconds and tasks up to an instant, or between two."""

    worker: float
    server: float
    machine: float
    seconds: float
    tasks: int

    @classmethod
    def now(cls, booth: Booth, workers: Workers) -> Spent:
        theirs = sum(cpu_seconds(worker.pid) for worker in workers)
        tasks = marks.count(booth.marks)
        return cls(theirs, booth.server.cpu_seconds(), busy_seconds(), time.monotonic(), tasks)

    def less(self, other: Spent) -> Spent:
        tasks = max(1, self.tasks - other.tasks)
        return Spent(
            self.worker - other.worker,
            self.server - other.server,
            self.machine - other.machine,
            self.seconds - other.seconds,
            tasks,
        )


def measured(
    contestant: Contestant,
    server: Server,
    answers: Answers,
    *,
    environment: dict[str, str],
    scale: float,
) -> Iterator[None]:
    """Put everything about one contestant into *answers*; what it can't do, or fails at, is said.

    Stops after each measurement, so that all have their turn while the machine is the same: its
    speed may change within minutes.
    """
    if contestant.program and not environment.get("BENCH_REDIS"):
        answers.problem = f"not measured: no {contestant.program} here"
        return
    name = f"bench_{contestant.module}"
    with server.database(name), tempfile.TemporaryDirectory() as folder:
        booth = None
        try:
            booth = Booth(contestant, server, name, Path(folder), environment, scale)
            answers.versions = booth.ask("prepare")
            for measure in measurements(booth):
                yield
                answers.figures |= measure()
        except (NotMeasuredError, subprocess.CalledProcessError, KeyError) as error:
            answers.problem = f"incomplete: {error}"
        finally:
            if booth:
                booth.close()


def measurements(booth: Booth) -> list[Callable[[], Figures]]:
    each = [booth.enqueue, booth.bulk, booth.pick_up]
    each += [partial(booth.drain, processes) for processes in (1, 2)]
    if booth.contestant.module == "leasequeue":
        each += [partial(booth.computing, processes) for processes in (1, 2)]
    return each


def end(process: subprocess.Popen[Any]) -> None:
    """Let it end by itself, else end its whole group."""
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def redis() -> Iterator[dict[str, str]]:
    """A Redis that keeps nothing on disk; gives the variable that says where, if there is one."""
    if not shutil.which("redis-server"):
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""]
        process = subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            while not Path(socket).exists():
                time.sleep(0.01)
            yield {"BENCH_REDIS": f"redis+socket://{socket}"}
        finally:
            process.terminate()
            process.wait()
