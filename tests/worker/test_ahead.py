"""Short tasks are claimed ahead of the threads; a slow one keeps none of them waiting for long."""

from __future__ import annotations

import time

from django.db import transaction

from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.worker.deliveries import AHEAD_MAX, UNRECORDED_MAX
from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def claims(site: Site) -> int:
    """How many claims leased something: what is leased by one claim is leased at one instant."""
    leased = TaskTransition.objects.using(site.using).filter(kind="leased")
    return leased.values("at").distinct().count()


def test_short_tasks_are_claimed_many_at_a_time(site: Site) -> None:
    for number in range(60):
        site.enqueue(tasks.add, number, 0)

    site.drain()

    assert site.kinds().count("acked") == 60
    assert claims(site) < 45


def test_what_waits_behind_a_slow_task_is_given_back_for_others(site: Site) -> None:
    """Uncounted, and never lapsed."""
    for number in range(20):
        site.enqueue(tasks.add, number, 0)
    site.enqueue(tasks.wait_at_the_gate)
    behind = [site.enqueue(tasks.add, number, 1) for number in range(20)]

    with site.worker():
        wait_for(lambda: "at the gate" in tasks.runs)
        with site.worker():
            wait_for(lambda: site.kinds().count("acked") == 40)
            for result in behind:
                result.refresh()
            assert [(result.attempts, result.return_value) for result in behind] == [
                (1, number + 1) for number in range(20)
            ]
            assert "lapsed" not in site.kinds()
            tasks.gate.set()


def test_a_worker_that_has_its_share_keeps_none_of_it_behind_a_slow_task(postgres: Site) -> None:
    for number in range(20):
        postgres.enqueue(tasks.add, number, 0)
    postgres.enqueue(tasks.wait_at_the_gate)
    for number in range(20):
        postgres.enqueue(tasks.add, number, 1)

    with postgres.worker(max_tasks=41):
        wait_for(lambda: "at the gate" in tasks.runs)
        with postgres.worker():
            wait_for(lambda: postgres.kinds().count("acked") == 40)


def test_what_may_be_delivered_only_once_more_never_waits_behind_others(site: Site) -> None:
    """B20: the death of the process costs it nothing before it has begun."""
    for number in range(20):
        site.enqueue(tasks.add, number, 0)
    site.enqueue(tasks.wait_at_the_gate)
    call = {"args": [1, 1], "kwargs": {}}
    for _ in range(20):
        site.queue.enqueue(call, path="tests.worker.tasks.add", max_attempts=1)

    with site.worker():
        wait_for(lambda: "at the gate" in tasks.runs)
        leased = Task.objects.using(site.using).filter(state="leased", max_attempts=1)
        wait_for(lambda: not leased.exists())
        tasks.gate.set()
        wait_for(lambda: site.kinds().count("acked") == 41)
        assert "lapsed" not in site.kinds()
        assert site.kinds().count("released") <= 41


def test_a_locked_row_stops_the_claims_before_much_has_to_be_done_again(postgres: Site) -> None:
    """What has ended but can't be recorded would be repeated if the worker died."""
    first = postgres.enqueue(tasks.wait_at_the_gate)
    call = {"args": [1, 1], "kwargs": {}}
    postgres.queue.enqueue_many(
        {"payload": call, "path": "tests.worker.tasks.add"} for _ in range(2500)
    )

    with postgres.worker(threads=2):
        wait_for(lambda: "at the gate" in tasks.runs)
        with transaction.atomic():
            Task.objects.select_for_update().get(life=first.id)
            tasks.gate.set()
            time.sleep(3)  # nothing to wait for: it is about what doesn't happen
            assert Task.objects.filter(state="leased").count() <= UNRECORDED_MAX + AHEAD_MAX
        wait_for(lambda: postgres.kinds().count("acked") == 2501)
