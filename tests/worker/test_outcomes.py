"""How an attempt can end, and what is told of it."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import OperationalError
from django.dispatch import Signal

from django_leasequeue import signals
from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import TASKS_LOGGER, TaskResultStatus, task_finished, task_started
from django_leasequeue.lease import Lease
from tests.databases import on_all
from tests.waiting import wait_for

from . import tasks
from .conftest import Site, receiving

pytestmark = on_all


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name == "django_leasequeue"]
    return [record.getMessage() for record in ours if " id=" in record.getMessage()]


def test_tasks_sync_and_async_are_run_and_their_results_kept(site: Site) -> None:
    results = [site.enqueue(tasks.add, 1, 2), site.enqueue(tasks.add_later, 3, 4)]

    site.drain()

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [3, 7]


def test_a_language_ends_with_the_task_that_chose_it(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.speak, language) for language in ("de", "fr")]
    postgres.drain(threads=1)

    for result in results:
        result.refresh()
        assert result.return_value == "en-us"


def test_an_outcome_is_one_line_always_in_the_same_order(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    result = site.enqueue(tasks.add, 1, 2)

    site.drain()

    shape = rf"acked queue=work id={result.id} attempt=1 token=\d+ in=\d+\.\d\d\ds"
    (line,) = lines(caplog)
    assert re.fullmatch(shape, line)


def test_a_failing_task_is_retried_and_then_dies(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    result = site.enqueue(tasks.fail, "no such mailbox")

    site.drain()

    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [line.split()[0] for line in lines(caplog)] == ["retried", "retried", "dead"]
    assert lines(caplog)[0].endswith("error=ValueError: no such mailbox")


def test_leaving_python_is_a_tasks_failure_and_no_workers_end(site: Site) -> None:
    leaving, healthy = site.enqueue(tasks.leave), site.enqueue(tasks.add, 1, 2)

    site.drain()

    leaving.refresh()
    healthy.refresh()
    assert leaving.errors[0].exception_class is SystemExit
    assert healthy.return_value == 3


def test_a_retry_is_no_finish(site: Site) -> None:
    told: list[Any] = []

    def started(task_result: Any, **_: Any) -> None:
        told.append(("started", task_result.status))

    def finished(task_result: Any, **_: Any) -> None:
        told.append(("finished", task_result.status))

    site.enqueue(tasks.fail, "no")

    with receiving(task_started, started), receiving(task_finished, finished):
        site.drain()

    running, failed = TaskResultStatus.RUNNING, TaskResultStatus.FAILED
    assert told == [("started", running)] * 3 + [("finished", failed)]


@pytest.mark.parametrize("signal", [None, task_started, task_finished])
def test_a_result_is_made_where_somebody_asks_for_it(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    signal: Signal | None,
) -> None:
    """It takes longer than to run a small task."""
    caplog.set_level("WARNING", logger=TASKS_LOGGER)  # as the worker's command has it
    for each in (task_started, task_finished):
        monkeypatch.setattr(each, "receivers", [])
    made: list[Any] = []
    make = LeaseQueueBackend.running_result

    def noted(*asked: Any) -> Any:
        made.append(asked)
        return make(*asked)

    monkeypatch.setattr(LeaseQueueBackend, "running_result", noted)
    site.enqueue(tasks.add, 1, 2)

    with receiving(signal, lambda **_: None) if signal else nullcontext():
        site.drain()

    assert len(made) == (signal is not None)
    assert site.kinds()[-1] == "acked"


def test_djangos_own_line_tells_that_a_task_has_failed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It is an error; of those that end well, or are tried again, it says nothing."""
    caplog.set_level("WARNING", logger=TASKS_LOGGER)
    site.enqueue(tasks.add, 1, 2)
    site.enqueue(tasks.fail, "no")

    site.drain()

    levels = [record.levelname for record in caplog.records if record.name == TASKS_LOGGER]
    assert levels == ["ERROR"]


def test_a_task_whose_history_can_t_be_read_is_given_back_before_it_begins(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = [OperationalError("away")]
    make = LeaseQueueBackend.running_result

    def read(backend: LeaseQueueBackend, lease: Lease, *known: Any) -> Any:
        if lease.attempt == 2 and outages:
            raise outages.pop()
        return make(backend, lease, *known)

    monkeypatch.setattr(LeaseQueueBackend, "running_result", read)
    site.enqueue(tasks.fail, "no")

    site.drain()

    retried, released = ["leased", "retried"], ["leased", "released"]
    assert site.kinds() == ["enqueued", *retried, *released, *retried, "leased", "dead"]


def test_a_receiver_that_raises_costs_nothing(site: Site) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("receiver")

    result = site.enqueue(tasks.add, 1, 2)

    with receiving(task_started, broken), receiving(task_finished, broken):
        site.drain()

    result.refresh()
    assert result.return_value == 3


def test_a_task_of_no_function_dies_at_once(site: Site) -> None:
    """A plain Queue user's task has no path: nothing here could run it."""
    site.queue.enqueue({"user": 7}, id="plain")

    site.drain()

    (letter,) = site.queue.dead_letters()
    assert (letter.id, letter.attempts) == ("plain", 1)


def test_a_lost_lease_is_told_once_and_not_repeated(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    losses: list[Any] = []

    def lost(reason: Any, **_: Any) -> None:
        losses.append(str(reason))

    result = site.enqueue(tasks.wait_at_the_gate)

    with receiving(signals.lease_lost, lost), site.worker():
        wait_for(lambda: tasks.runs == ["at the gate"])
        site.queue.cancel(result.id)
        tasks.gate.set()
        wait_for(lambda: bool(lines(caplog)))

    (line,) = lines(caplog)
    assert line.startswith("lost queue=work")
    assert line.endswith("reason=cancelled")
    assert losses == ["cancelled"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("how", "status"), [("returns", 0), ("exits", 3), ("raises", 1)])
def test_a_child_that_a_task_has_forked_ends_where_the_task_does(
    postgres: Site, how: str, status: int
) -> None:
    """It went on as a worker without its threads, in its parent's sessions, and never ended."""
    result = postgres.enqueue(tasks.fork, how)
    postgres.drain(threads=1)

    result.refresh()
    assert result.return_value == status
