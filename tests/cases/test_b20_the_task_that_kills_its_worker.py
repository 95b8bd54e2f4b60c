"""B20: attempts are counted where no dying process can lose the count."""

from __future__ import annotations

import signal
from pathlib import Path

from django_leasequeue.compat import TaskResultStatus
from django_leasequeue.models import TaskTransition
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def test_it_dies_after_its_attempts_and_the_healthy_ones_are_done(
    postgres: Site, tmp_path: Path
) -> None:
    """G17"""
    site, diary = postgres, tmp_path / "pids"
    deadly = site.enqueue(tasks.kill_the_worker, str(diary))
    healthy = [site.enqueue(tasks.add, number, 1) for number in range(5)]

    for _ in range(3):  # what a supervisor does
        process = site.start()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        site.queue.adopt(
            worker=str(TaskTransition.objects.filter(kind="leased").latest("pk").worker)
        )
    with site.worker():
        wait_for(lambda: site.kinds().count("acked") == 5 and site.queue.depth().dead == 1)

    for result in (deadly, *healthy):
        result.refresh()
    assert deadly.status == TaskResultStatus.FAILED
    assert len(set(diary.read_text().split())) == 3
    # Once each, or twice where a death came before their end was on record.
    assert {result.status for result in healthy} == {TaskResultStatus.SUCCESSFUL}
