"""The run: everybody starts, the faults strike, all is calm again, the checker reads."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from django.core.management import call_command
from django.db import connection

from django_leasequeue import Queue
from django_leasequeue.audit import verify
from django_leasequeue.models import Batch, Task
from django_leasequeue.stores import store_for
from django_leasequeue.transitions import State
from tests.chaos import checker
from tests.chaos.evidence import ATOMIC_TABLE, ORDER_TABLE, gathered
from tests.chaos.faults import Event, schedule
from tests.chaos.load import QUEUES
from tests.chaos.proxy import FAIR
from tests.chaos.stage import GRANTS, ROLE, Stage

START_SECONDS: Final = 120.0
CALM_SECONDS: Final = 120.0  # without anything ending: what is left then is left over
PAUSE_SECONDS: Final = 1.2  # between two faults, on average
FALLEN: Final = r"the worker's \S+ failed|CommandError: --"
TABLES: Final = f"""
CREATE ROLE {ROLE} LOGIN;
CREATE ROLE web;
CREATE TABLE {ATOMIC_TABLE} (life uuid, token bigint);
CREATE TABLE {ORDER_TABLE} (mark text PRIMARY KEY);
GRANT SELECT, INSERT ON {ATOMIC_TABLE}, {ORDER_TABLE} TO {ROLE};
"""


@dataclass(frozen=True)
class Report:
    """What happened, and what is wrong with it."""

    faults: Counter[str]
    statuses: Counter[int]
    figures: dict[str, int]
    effects: dict[str, int]
    violations: list[str]


def run(stage: Stage, *, seconds: float, workers: int, clients: int, per_second: float) -> Report:
    """Conduct a run of *seconds* and what it takes to come to rest."""
    prepare(stage)
    stage.add_workers(workers)
    stage.add_clients(clients, per_second)
    wait_until_at_work(stage)
    faults = under_faults(stage, seconds)
    statuses = come_to_rest(stage)
    connection.close()  # the server was restarted meanwhile
    evidence = gathered(stage.folder)
    return Report(
        faults=faults,
        statuses=statuses,
        figures=checker.figures(evidence),
        effects={"outside": len(evidence.outside), "committed": len(evidence.committed)},
        violations=[*checker.violations(evidence), *drift(), *fallen(stage)],
    )


def fallen(stage: Stage) -> Iterator[str]:
    """Who ended in a way that no fault explains."""
    yield from stage.said_in_logs(FALLEN)
    for client in stage.clients:
        if client.statuses[1]:
            yield f"{client.name} fell over {client.statuses[1]} times: see its log"


def drift() -> Iterator[str]:
    """What ``manage.py leasequeue verify`` finds: another reader of the same log."""
    for step in verify(store_for("default")):
        yield from (f"verify: {finding}" for finding in step.findings)


def prepare(stage: Stage) -> None:
    """The tables, and the role that the processes have."""
    call_command("migrate", verbosity=0)
    for statements in (TABLES, *GRANTS):
        stage.sql(statements)


def wait_until_at_work(stage: Stage) -> None:
    """On a busy machine it takes Python a while to start so many processes."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and not all(member.is_at_work() for member in stage.everybody):
        stage.supervise()
        time.sleep(0.1)


class Agenda:
    """What is to be done when, in seconds from its making on."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.numbers = count()  # what is due at the same time is never compared
        self.due: list[tuple[float, int, Callable[[], object]]] = []

    def add(self, at: float, act: Callable[[], object]) -> None:
        heapq.heappush(self.due, (at, next(self.numbers), act))

    def do(self) -> None:
        """Do what is due."""
        while self.due and self.due[0][0] <= time.monotonic() - self.start:
            heapq.heappop(self.due)[2]()


def under_faults(stage: Stage, seconds: float) -> Counter[str]:
    """How often which fault struck."""
    struck: Counter[str] = Counter()
    agenda = Agenda()
    for event in schedule(stage.seed, seconds, pause=PAUSE_SECONDS):
        agenda.add(event.at, partial(strike, event, stage, agenda, struck))
    while agenda.due:
        stage.supervise()
        agenda.do()
        time.sleep(0.05)
    return struck


def strike(event: Event, stage: Stage, agenda: Agenda, struck: Counter[str]) -> None:
    struck[event.fault.name] += 1
    if undo := event.fault.strike(stage, event.dice):
        agenda.add(time.monotonic() - agenda.start + event.lasts, undo)


def come_to_rest(stage: Stage) -> Counter[int]:
    """End the clients, let the workers do what is left, end them; their exit statuses."""
    stage.proxy.weather = FAIR
    for client in stage.clients:
        client.stop(5)
    stage.cluster.wait_until_ready()
    connection.close()  # the server was restarted meanwhile
    for queue in QUEUES:
        Queue(queue).resume(by="the conductor")
    least, end = work_left(), time.monotonic() + CALM_SECONDS
    while least and time.monotonic() < end:
        for worker in stage.workers:
            worker.supervise()
        time.sleep(0.2)
        if (left := work_left()) < least:
            least, end = left, time.monotonic() + CALM_SECONDS
    return Counter(worker.stop(15) for worker in stage.workers)


def work_left() -> int:
    connection.close()
    batches = Batch.objects.filter(done_at=None)
    return Task.objects.exclude(state=State.DEAD).count() + batches.count()


def lines(report: Report) -> Iterator[str]:
    """The report, for people."""
    got = report.figures
    yield "faults: " + ", ".join(f"{name} {n}" for name, n in report.faults.most_common())
    yield (
        f"{got['enqueued']} enqueued = {got['acked']} acked + {got['dropped']} dropped"
        f" + {got['cancelled']} cancelled + {got['held']} held"
    )
    yield "logged: " + ", ".join(f"{n} {name}" for name, n in got.items())
    yield "effects: " + ", ".join(f"{n} {name}" for name, n in report.effects.items())
    yield f"the workers' last exit statuses: {dict(report.statuses)}"
    yield f"violations: {len(report.violations)}"
    yield from (f"  {violation}" for violation in report.violations[: checker.SHOWN])
