"""B55: rows outlive code. A task whose function is gone waits, dies, and can be redriven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.compat import TaskResultStatus
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import Site, wait_until_said

pytestmark = on_all


def test_tasks_of_a_lost_function_fail_clearly_and_the_others_are_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G43"""
    lost = [site.enqueue(tasks.add, number, 1) for number in range(10)]
    healthy = [site.enqueue(tasks.count_groups) for _ in range(5)]
    monkeypatch.delattr(tasks, "add")

    site.drain()

    for result in lost + healthy:
        result.refresh()
    assert [result.status for result in lost] == [TaskResultStatus.FAILED] * 10
    assert [result.attempts for result in lost] == [3] * 10
    assert "tests.worker.tasks.add" in lost[0].errors[0].traceback
    assert [result.return_value for result in healthy] == [0] * 5


def test_after_the_function_is_back_a_redrive_succeeds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = site.enqueue(tasks.add, 1, 2)
    with monkeypatch.context() as change:
        change.delattr(tasks, "add")
        site.drain()

    site.queue.redrive_all()
    site.drain()

    result.refresh()
    assert result.return_value == 3


NEWER = """
from django.apps import AppConfig

class Newer(AppConfig):
    name = "newer"

    def ready(self):
        from tests.worker import tasks
        del tasks.add
"""


def test_of_two_versions_side_by_side_the_older_one_does_what_it_still_can(
    postgres: Site, tmp_path: Path
) -> None:
    """G43: and what the newer one has given up, a redrive brings back to it."""
    (tmp_path / "newer.py").write_text(NEWER)
    place = {"PYTHONPATH": str(tmp_path), "FURTHER_APPS": "newer.Newer"}
    newer = postgres.start("--poll-interval=0.1", **place)
    wait_until_said(newer, "started")
    with postgres.worker(poll_interval=0.1):
        lost = [postgres.enqueue(tasks.add, number, 1) for number in range(10)]
        healthy = [postgres.enqueue(tasks.count_groups) for _ in range(5)]
        wait_for(lambda: sum(ended(result) for result in lost + healthy) == 15)

        newer.terminate()
        assert newer.wait(PATIENCE) == 0
        postgres.queue.redrive_all()
        wait_for(lambda: all(done(result) for result in lost + healthy))

    assert [result.return_value for result in lost] == list(range(1, 11))


def ended(result: Any) -> bool:
    result.refresh()
    return result.status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)


def done(result: Any) -> bool:
    result.refresh()
    return bool(result.status == TaskResultStatus.SUCCESSFUL)
