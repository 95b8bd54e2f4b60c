"""Async tasks side by side on one event loop, and what they may not do to each other."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue.compat import TaskResultStatus, task_backends
from django_leasequeue.worker import Worker, coroutines, heartbeats
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for

from . import tasks
from .conftest import Site


def test_many_of_them_wait_at_a_time_in_one_process(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.meet, 300) for _ in range(300)]

    postgres.drain(async_tasks=300)

    results[-1].refresh()
    assert results[-1].return_value == 300
    assert postgres.kinds().count("acked") == 300
    assert postgres.kinds().count("leased") == 300


def test_the_loop_ends_with_its_worker(postgres: Site) -> None:
    before = set(threading.enumerate())
    postgres.enqueue(tasks.count_those_beside)

    postgres.drain(async_tasks=2)

    new = {thread.name for thread in threading.enumerate() if thread not in before}
    assert not new & {"loop", "launcher", "judge"}


def test_a_loop_told_to_stop_before_it_runs_ends_well(postgres: Site) -> None:
    """A signal comes as the worker starts."""
    worker = Worker(task_backends[postgres.alias], ["work"], async_tasks=1)  # type: ignore[arg-type]
    assert worker.coroutines

    worker.coroutines.stop()

    in_thread(worker.coroutines.run).result(PATIENCE)


def test_who_waits_has_its_turn_between_those_that_are_over_at_once(postgres: Site) -> None:
    """Each of these makes room for another."""
    worker = Worker(task_backends[postgres.alias], ["work"], async_tasks=1)  # type: ignore[arg-type]
    loop = worker.coroutines
    assert loop
    turns: list[Any] = []

    async def be_over(number: int) -> None:
        turns.append(number)
        if number == 0:
            loop.loop.call_soon(turns.append, "who waits")
        if number == 9:
            loop.stop()
        else:
            loop.hand_over(be_over(number + 1), copy_context())

    loop.hand_over(be_over(0), copy_context())

    in_thread(loop.run).result(PATIENCE)
    assert turns[:2] == [0, "who waits"]
    assert turns[2:] == [*range(1, 10)]


def test_the_loop_goes_on_when_a_task_stops_it(postgres: Site) -> None:
    postgres.enqueue(tasks.stop_the_loop)

    postgres.drain(async_tasks=1)

    assert postgres.kinds()[-1] == "acked"


def test_no_more_of_them_run_than_the_site_wants(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.count_those_beside) for _ in range(60)]

    postgres.drain(async_tasks=5)

    for result in results:
        result.refresh()
    assert max(result.return_value for result in results) <= 5


def test_the_others_have_the_threads(postgres: Site) -> None:
    waiting = postgres.enqueue(tasks.see_three_others_through)
    for number in range(3):
        postgres.enqueue(tasks.add, number, 0)

    postgres.drain(async_tasks=10)  # one thread: with the waiting task in it nothing else would run

    waiting.refresh()
    assert waiting.return_value == [0, 1, 2]


def test_each_knows_its_own_lease_and_attempt(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.fail_first) for _ in range(20)]

    postgres.drain(async_tasks=20)

    for result in results:
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.return_value == [result.id, 2]


def test_one_that_takes_too_long_is_cancelled_with_what_it_started_and_no_other(
    postgres: Site,
) -> None:
    slow = postgres.enqueue(tasks.never_end_with_a_child)
    patient = postgres.enqueue(tasks.outlast_the_cancelled)

    postgres.drain(async_tasks=2)

    slow.refresh()
    patient.refresh()
    assert slow.status == TaskResultStatus.FAILED
    assert "TaskTimeout" in slow.errors[0].exception_class_path
    assert patient.return_value == "mine ended well"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-tasks", "1"],
        ["--max-tasks", "1", "--async-tasks", "1"],
        ["--max-tasks-per-child", "1", "--drain"],
    ],
    ids=" ".join,
)
def test_a_thread_that_a_cancelled_one_waited_for_keeps_no_process(
    postgres: Site, arguments: list[str]
) -> None:
    postgres.enqueue(tasks.leave_a_thread_behind)

    process = postgres.start(*arguments)

    assert process.wait(PATIENCE) == 0
    assert postgres.kinds()[-1] == "dead"


def test_a_worker_that_is_stopped_lets_them_end(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.await_the_gate) for _ in range(3)]
    with postgres.worker(async_tasks=3):
        wait_for(lambda: len(tasks.runs) == 3)

    for result in results:
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL


def test_an_exit_in_a_child_is_its_task_s_failure_and_no_other_s(postgres: Site) -> None:
    patient = postgres.enqueue(tasks.meet, 1)
    failing = postgres.enqueue(tasks.exit_in_a_child)

    postgres.drain(async_tasks=2)

    failing.refresh()
    patient.refresh()
    assert failing.status == TaskResultStatus.FAILED
    assert patient.status == TaskResultStatus.SUCCESSFUL


def test_whatever_one_leaves_behind_its_end_is_recorded(postgres: Site) -> None:
    odd = postgres.enqueue(tasks.leave_a_cancellation_behind)

    postgres.drain(async_tasks=1)

    odd.refresh()
    assert odd.status == TaskResultStatus.FAILED
    assert "ValueError" in odd.errors[0].exception_class_path


def test_one_that_has_no_place_is_not_claimed_again_and_again(postgres: Site) -> None:
    """It may not wait here: this is its only delivery."""
    postgres.enqueue(tasks.await_the_gate)
    with postgres.worker(async_tasks=1):
        wait_for(lambda: bool(tasks.runs))
        postgres.enqueue(tasks.note_one_delivery)
        began = time.monotonic()
        time.sleep(1.5)  # nothing to wait for: it is about what doesn't happen
        assert postgres.kinds().count("released") <= 2 + 2 * (time.monotonic() - began)
        tasks.gate.set()
        wait_for(lambda: "once" in tasks.runs)


@on_all
def test_a_session_that_one_has_altered_is_not_the_next_one_s(site: Site) -> None:
    before = site.enqueue(tasks.leave_a_transaction_open, site.using)
    after = site.enqueue(tasks.begin_a_transaction, site.using)

    site.drain(async_tasks=1)

    before.refresh()
    after.refresh()
    assert before.status == TaskResultStatus.SUCCESSFUL
    assert after.status == TaskResultStatus.SUCCESSFUL
    assert Group.objects.using(site.using).filter(name="after").exists()


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_full_loop_is_in_nobody_s_way_who_needs_a_thread(
    postgres: Site, max_attempts: int
) -> None:
    """What may wait for a place on the loop waits, what may not is given back: both for long."""
    path = tasks.await_the_gate.module_path
    call: Any = {"args": [], "kwargs": {}}
    postgres.enqueue(tasks.await_the_gate)
    with postgres.worker(async_tasks=1):
        wait_for(lambda: bool(tasks.runs))
        for _ in range(5):
            postgres.queue.enqueue(call, path=path, max_attempts=max_attempts)
        results = [postgres.enqueue(tasks.add, number, 0) for number in range(30)]
        wait_for(lambda: postgres.kinds().count("acked") == len(results))
        assert not tasks.gate.is_set()


def test_one_that_blocks_the_loop_past_its_lease_ends_the_worker(
    postgres: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G49: else all others would have their leases renewed, and never run."""
    monkeypatch.setattr(coroutines, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(heartbeats, "LOOK_SECONDS", 0.1)
    postgres.enqueue(tasks.block_the_loop_for_ever)

    with postgres.worker(async_tasks=20) as worker:
        wait_for(lambda: worker.failed)

    assert worker.failed


def test_a_worker_whose_every_place_is_kept_by_what_can_t_be_cancelled_ends(
    postgres: Site,
) -> None:
    """G49"""
    for _ in range(2):
        postgres.enqueue(tasks.swallow_the_cancellation)

    with postgres.worker(async_tasks=2) as worker:
        wait_for(lambda: worker.failed)

    assert worker.failed


def test_who_can_t_be_cancelled_costs_the_others_only_his_place(postgres: Site) -> None:
    postgres.enqueue(tasks.swallow_the_cancellation)

    with postgres.worker(async_tasks=2) as worker:
        wait_for(lambda: any(each.stuck() for each in worker.deliveries.afloat))
        after = postgres.enqueue(tasks.add_later, 1, 2)
        wait_for(lambda: "acked" in postgres.kinds())

    after.refresh()
    assert after.return_value == 3
    assert not worker.failed


def test_a_failure_is_recorded_though_tasks_keep_all_threads_of_the_loop(postgres: Site) -> None:
    """asyncio gives them min(32, processors + 4); a failure's backoff is asked beside them."""
    keeper = postgres.enqueue(tasks.keep_the_loop_s_threads)
    with postgres.worker(async_tasks=2):
        wait_for(lambda: bool(tasks.runs))
        failing = postgres.enqueue(tasks.fail_later)
        wait_for(lambda: "dead" in postgres.kinds())
        tasks.gate.set()
        wait_for(lambda: "acked" in postgres.kinds())

    failing.refresh()
    keeper.refresh()
    assert failing.status == TaskResultStatus.FAILED
    assert keeper.status == TaskResultStatus.SUCCESSFUL
