"""``@task(atomic=True)``: what the body wrote and its acknowledgement are one commit."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue import signals
from django_leasequeue.compat import TaskResultStatus, task_finished
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for

from . import tasks
from .conftest import Site, receiving
from .test_outcomes import lines

pytestmark = on_all


def groups(site: Site) -> list[str]:
    return list(Group.objects.using(site.using).values_list("name", flat=True))


def test_work_and_acknowledgement_are_one_commit_and_the_result_is_kept(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G54: And Django's receivers are told after it, once."""
    told: list[Any] = []

    def finished(task_result: Any, **_: Any) -> None:
        # In the finisher's thread: another session than the body's.
        told.append((task_result.status, task_result.return_value, groups(site)))

    result = site.enqueue(tasks.found_atomically, "a")

    with receiving(task_finished, finished):
        site.drain()

    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "a")
    assert told == [(TaskResultStatus.SUCCESSFUL, "a", ["a"])]
    assert [line.split()[0] for line in lines(caplog)] == ["acked"]
    assert site.kinds() == ["enqueued", "leased", "acked"]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("fail", "ValueError"),
        ("swallow an error", "TransactionManagementError"),
        ("break a promise to the commit", "IntegrityError"),
    ],
)
def test_an_attempt_that_fails_before_its_commit_leaves_nothing(
    site: Site, how: str, error: str
) -> None:
    """G54: And is retried like any other, whether the body, the transaction or the commit fails."""
    result = site.enqueue(tasks.found_atomically, "a", how)

    site.drain()

    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [each.exception_class_path.rpartition(".")[2] for each in result.errors] == [error] * 2
    assert tasks.runs == ["a", "a"]
    assert groups(site) == []


def test_a_crash_after_the_write_leaves_neither_work_nor_acknowledgement(site: Site) -> None:
    """G54"""
    site.enqueue(tasks.found_atomically, "a", "die")

    assert site.start("--drain").wait(PATIENCE) == -9

    assert groups(site) == []
    assert site.kinds() == ["enqueued", "leased"]


def test_a_lease_that_lapses_in_the_body_takes_its_writes_along(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G54: And is a lost lease, not a failure of the task."""
    result = site.enqueue(tasks.found_too_late, "a")

    with site.worker(max_tasks=1):
        wait_for(lambda: tasks.runs == ["a"])
        wait_for(lambda: site.queue.depth().visible == 1)
        tasks.gate.set()
        wait_for(lambda: bool(lines(caplog)))
    assert "reason=capped" in lines(caplog)[0]
    assert groups(site) == []
    site.drain()

    result.refresh()
    assert [line.split()[0] for line in lines(caplog)] == ["lost", "acked"]
    moves = [kind for kind in site.kinds() if kind != "heartbeat"]
    assert moves[-3:] == ["lapsed", "leased", "acked"]
    assert groups(site) == ["a"]


@pytest.mark.parametrize("how", ["superseded", "cancelled"])
def test_the_writes_of_a_worker_that_lost_its_task_are_not_there(
    server: Site, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """G54: On SQLite nobody can take the task away before the body has ended: one writer. (B52)"""
    losses: list[str] = []

    def lost(reason: Any, **_: Any) -> None:
        losses.append(str(reason))

    def take_away() -> bool:
        if how == "cancelled":
            return server.queue.cancel(result.id)
        return bool(server.queue.claim(worker="other"))

    result = server.enqueue(tasks.found_too_late, "a")

    with receiving(signals.lease_lost, lost), server.worker(max_tasks=1):
        wait_for(lambda: tasks.runs == ["a"])
        wait_for(take_away)
        tasks.gate.set()
        wait_for(lambda: bool(lines(caplog)))

    assert lines(caplog)[0].startswith("lost ")
    assert set(losses) == {how}  # by a heartbeat, too, where the machine is slow
    assert groups(server) == []


def test_an_atomic_task_longer_than_its_lease_is_renewed(server: Site) -> None:
    """G39: On SQLite no heartbeat gets through: an atomic body must end within its lease there."""
    result = server.enqueue(tasks.found_slowly, "a", 4 / 3 * tasks.RENEWED)

    server.drain()

    result.refresh()
    assert result.return_value == 1
    assert "heartbeat" in server.kinds()


def test_hooks_run_after_the_commit(site: Site) -> None:
    site.enqueue(tasks.found_atomically, "a", "hook")

    site.drain()

    assert tasks.runs == ["a", 1]


@pytest.mark.parametrize("how", ["failing hook", "lose the answer"])
def test_what_goes_wrong_after_the_commit_does_not_undo_it(
    site: Site, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """G54: The task is done, whatever the commit's answer; the log has the error."""
    told: list[Any] = []

    def finished(task_result: Any, **_: Any) -> None:
        told.append((task_result.status, task_result.return_value))

    result = site.enqueue(tasks.found_atomically, "a", how)

    with receiving(task_finished, finished):
        site.drain()

    result.refresh()
    assert (result.return_value, groups(site)) == ("a", ["a"])
    assert [line.split()[0] for line in lines(caplog)] == ["acked"]
    assert told == [(TaskResultStatus.SUCCESSFUL, "a")]
    assert "acknowledged all the same" in caplog.text
