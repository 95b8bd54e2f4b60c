"""Async tasks side by side on one event loop, and what they may not do to each other."""

from __future__ import annotations

import time

from django.contrib.auth.models import Group

from django_leasequeue.compat import TaskResultStatus
from tests.databases import on_all
from tests.waiting import wait_for

from . import tasks
from .conftest import Site


def test_many_of_them_wait_at_a_time_in_one_process(postgres: Site) -> None:
    results = [postgres.enqueue(tasks.meet, 300) for _ in range(300)]

    postgres.drain(async_tasks=300)

    results[-1].refresh()
    assert results[-1].return_value == 300
    assert postgres.kinds().count("acked") == 300
    assert postgres.kinds().count("leased") == 300


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
    assert patient.return_value == "[] then mine ended well"


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
        time.sleep(1.5)  # nothing to wait for: it is about what doesn't happen
        assert postgres.kinds().count("released") <= 4
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
