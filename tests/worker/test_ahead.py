"""Short tasks are claimed ahead of the threads; a slow one keeps none of them waiting for long."""

from __future__ import annotations

import pytest

from django_leasequeue.models import TaskTransition
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = pytest.mark.django_db(databases=["default", "sqlite"], transaction=True)


def claims(site: Site) -> int:
    """How many claims leased something: what is leased by one claim is leased at one instant."""
    leased = TaskTransition.objects.using(site.using).filter(kind="leased")
    return leased.values("at").distinct().count()


def test_short_tasks_are_claimed_many_at_a_time(site: Site) -> None:
    for number in range(60):
        site.enqueue(tasks.add, number, 0)

    site.drain()

    assert site.kinds().count("acked") == 60
    assert claims(site) < 30


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
