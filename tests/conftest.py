"""Queues over every store, on a clock that only moves when a test moves it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from django.db import connections
from hypothesis import HealthCheck, settings

from django_leasequeue import Queue
from django_leasequeue.testing.clock import FakeClock
from tests.databases import ALIASES, NAMES, on_all

MakeQueue = Callable[..., Queue]

# A database is slow to draw from, as Hypothesis sees it.
both = settings(deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("quick", both, max_examples=15, stateful_step_count=25)
settings.register_profile("nightly", both, max_examples=2000, stateful_step_count=60)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Whether there is time for what takes minutes: `make nightly`."""


def database(alias: str) -> ParameterSet:
    marks = pytest.mark.django_db(databases=[alias], transaction=True)
    return pytest.param(alias, marks=marks, id=NAMES[alias])


DATABASES = [database(alias) for alias in ALIASES]
on_databases = pytest.mark.parametrize("make_queue", DATABASES, indirect=True)
"""For what the model can't have: transactions."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark who uses which databases: only what marks name before the first test is made."""
    all_of_them = pytest.mark.django_db(databases=ALIASES)
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        site, alias = given.get("site"), given.get("alias")
        if "both_databases" in getattr(item, "fixturenames", ()):
            item.add_marker(all_of_them)
        elif "backend" in given:
            item.add_marker(on_all)
        elif site in ALIASES and not any(mark.name == "django_db" for mark in item.own_markers):
            # The others need no emptying after a test that doesn't ask for them itself.
            its_own = pytest.mark.django_db(databases=[site], transaction=True)
            item.add_marker(its_own, append=False)
        elif alias in ALIASES and item.get_closest_marker("django_db") is None:
            item.add_marker(pytest.mark.django_db(databases=[alias]))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", *DATABASES])
def make_queue(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[MakeQueue]:
    """A maker of queues that share one store and one clock."""
    opened: list[Queue] = []
    if request.param == "memory":
        from django_leasequeue.testing.memory import MemoryQueue  # noqa: PLC0415

        first = MemoryQueue("first", clock=clock)

        def make(name: str = "emails", **options: Any) -> Queue:
            queue = MemoryQueue(name, clock=clock, store=first.store, **options)
            opened.append(queue)
            return queue
    else:
        request.getfixturevalue("transactional_db")

        def make(name: str = "emails", **options: Any) -> Queue:
            queue = Queue(name, using=request.param, clock=clock, **options)
            opened.append(queue)
            return queue

    yield make
    for queue in opened:
        queue.close()


@pytest.fixture(autouse=True)
def unwatched() -> Iterator[None]:
    """Whoever still watched the statements of this thread would change how later ones are sent."""
    yield
    begun = connections.all(initialized_only=True)
    watching = [each.alias for each in begun if each.execute_wrappers]
    for alias in watching:
        connections[alias].execute_wrappers.clear()
    assert not watching, f"somebody still watches the statements of {watching}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half a surrogate pair in what was logged (B03) couldn't be told to another process."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what a machine lacked: a skipped test is easily taken for one that passed."""
    reports = terminalreporter.stats.get("skipped", [])
    for lacking in sorted({str(report.longrepr[2]) for report in reports}):
        if "needs " in lacking:
            terminalreporter.write_line(f"NOT RUN: {lacking}", yellow=True)
