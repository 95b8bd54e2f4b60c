"""B55: rows outlive code. A task whose function is gone waits, dies, and can be redriven."""

from __future__ import annotations

import pytest

from django_leasequeue.compat import TaskResultStatus
from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

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
