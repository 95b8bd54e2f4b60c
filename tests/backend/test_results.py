"""What comes out: a result that tells, by the clock, how its task stands or ended."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_leasequeue import Lease
from django_leasequeue.backend import LeaseQueueBackend, finished_result
from django_leasequeue.compat import TaskResult, TaskResultDoesNotExist, TaskResultStatus
from django_leasequeue.errors import (
    TaskCancelledError,
    TaskFailedError,
    TaskNotFoundError,
    WorkerVanishedError,
)
from django_leasequeue.retention import Walk
from django_leasequeue.testing.clock import START, FakeClock
from django_leasequeue.transitions import Kind

from . import tasks

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
SUCCESSFUL, FAILED = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED


@dataclass
class Story:
    """One task of the queue ``mail``, moved along by hand."""

    backend: LeaseQueueBackend
    clock: FakeClock
    id: str

    @property
    def result(self) -> TaskResult[..., Any]:
        return self.backend.get_result(self.id)

    def claim(self, worker: str = "w1") -> Lease:
        [lease] = self.backend.queue("mail").claim(worker=worker)
        return lease

    def fail(self, error: BaseException | str = "no", **how: Any) -> None:
        self.backend.queue("mail").fail(self.claim(), error, **how)


@pytest.fixture
def story(backend: LeaseQueueBackend, clock: FakeClock) -> Story:
    return Story(backend, clock, tasks.limited.enqueue().id)


def seconds(count: float) -> Any:
    return START + timedelta(seconds=count)


def test_a_result_reads_the_same_again(story: Story) -> None:
    assert story.result == story.result
    assert tasks.limited.get_result(story.id) == story.result


def test_a_leased_task_is_running(story: Story) -> None:
    story.clock.set(5)
    story.claim()

    result = story.result
    assert result.status == RUNNING
    assert (result.started_at, result.last_attempted_at) == (seconds(5), seconds(5))
    assert (result.worker_ids, result.attempts) == (["w1"], 1)


def test_an_acknowledged_task_is_successful_after_it_has_left(story: Story) -> None:
    lease = story.claim()
    story.clock.set(3)
    story.backend.queue("mail").complete(lease, result={"sent": 1})

    result = story.result
    assert result.status == SUCCESSFUL
    assert result.return_value == {"sent": 1}
    assert result.finished_at == seconds(3)


def test_a_task_waiting_for_its_retry_is_ready(story: Story) -> None:
    story.fail(ValueError("full"), retry_after=60)

    result = story.result
    assert result.status == READY
    assert (result.attempts, result.finished_at) == (1, None)
    assert [error.exception_class for error in result.errors] == [ValueError]
    assert result.errors[0].traceback.endswith("ValueError: full\n")


def test_a_released_lease_was_no_attempt(story: Story) -> None:
    story.backend.queue("mail").release(story.claim())

    assert (story.result.status, story.result.attempts) == (READY, 0)
    assert story.result.started_at is None


def test_a_lease_is_over_at_the_very_instant_of_its_deadline(story: Story) -> None:
    story.claim()
    story.clock.set(10)

    result = story.result
    assert result.status == READY
    assert [error.exception_class for error in result.errors] == [WorkerVanishedError]
    assert "worker w1 let its lease pass (attempt 1," in result.errors[0].traceback


def test_a_task_dead_by_the_clock_has_failed_when_its_lease_ran_out(story: Story) -> None:
    story.fail(ValueError(), retry_after=0)
    story.claim("w2")
    story.clock.set(99)

    result = story.result
    assert (result.status, result.finished_at) == (FAILED, seconds(10))
    assert [error.exception_class for error in result.errors] == [ValueError, WorkerVanishedError]
    assert result.worker_ids == ["w1", "w2"]


def test_a_failure_in_words_has_an_error_too(story: Story) -> None:
    story.fail("the printer is on fire", retryable=False)

    [error] = story.result.errors
    assert (error.exception_class, error.traceback) == (TaskFailedError, "the printer is on fire")


def test_a_cancelled_task_says_who_did_it_and_why(story: Story) -> None:
    story.clock.set(4)
    story.backend.queue("mail").cancel(story.id, by="ada", reason="no longer needed")

    result = story.result
    assert (result.status, result.finished_at) == (FAILED, seconds(4))
    [error] = result.errors
    assert error.exception_class is TaskCancelledError
    assert "cancelled by ada: no longer needed" in error.traceback


def test_an_adopted_lease_says_that_its_worker_started_anew(story: Story) -> None:
    story.claim()
    story.backend.queue("mail").adopt(worker="w1")

    [error] = story.result.errors
    assert error.exception_class is WorkerVanishedError
    assert "w1 was started anew" in error.traceback


def test_a_dropped_task_has_failed(
    backend: LeaseQueueBackend, clock: FakeClock, settings: Any
) -> None:
    story = Story(backend, clock, tasks.send.enqueue("ada").id)
    object.__setattr__(backend.queue("mail").policy, "on_fatal", "drop")
    story.fail(LookupError("nobody"), retryable=False)

    assert story.result.status == FAILED
    assert [error.exception_class for error in story.result.errors] == [LookupError]


def test_a_redrive_starts_the_attempts_again_and_keeps_the_errors(story: Story) -> None:
    story.fail(ValueError("full"), retryable=False)
    story.backend.queue("mail").redrive([story.id])

    assert (story.result.status, story.result.attempts) == (READY, 0)
    lease = story.claim("w2")
    assert lease.attempt == story.result.attempts == 1
    assert story.result.worker_ids == ["w2"]
    assert [error.exception_class for error in story.result.errors] == [ValueError]


def test_a_result_is_refreshed_in_place(story: Story) -> None:
    result = story.result
    story.backend.queue("mail").complete(story.claim(), result="done")

    result.refresh()
    assert result == story.result
    assert result.return_value == "done"

    stale = tasks.limited.enqueue()
    story.claim()
    async_to_sync(stale.arefresh)()
    assert stale.status == RUNNING


@pytest.mark.parametrize("id", ["123", "", "\x00", "0192f0c8-0000-7000-8000-000000000000", None, 5])
@pytest.mark.parametrize("backend", ["default"], indirect=True)
def test_an_id_that_no_task_had_has_no_result(backend: LeaseQueueBackend, id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(backend.aget_result)(id)


def test_a_task_without_a_function_has_no_result(backend: LeaseQueueBackend) -> None:
    stored = backend.queue("mail").enqueue({"args": [], "kwargs": {}}, id="mine")

    for id in (str(stored.life), "mine"):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(id)


def test_a_task_whose_function_is_gone_still_has_a_result(backend: LeaseQueueBackend) -> None:
    """B55: and says so when it is called."""
    path = "tests.backend.tasks.renamed"
    stored = backend.queue("mail").enqueue({"args": [1], "kwargs": {}}, path=path)

    result = backend.get_result(str(stored.life))
    assert (result.status, result.args) == (READY, [1])
    assert (result.task.module_path, result.task.name) == (path, "renamed")
    assert result == backend.get_result(str(stored.life))
    with pytest.raises(TaskNotFoundError, match="renamed"):
        result.task.call(1)


def test_reading_a_result_never_imports_what_lies_outside(backend: LeaseQueueBackend) -> None:
    stored = backend.queue("mail").enqueue({"args": [], "kwargs": {}}, path="this.s")
    sys.modules.pop("this", None)

    assert backend.get_result(str(stored.life)).task.module_path == "this.s"
    assert "this" not in sys.modules


def test_a_queue_taken_out_of_the_settings_keeps_its_results(
    backend: LeaseQueueBackend, settings: Any
) -> None:
    result = tasks.send.enqueue("ada")
    backend.queues = {"other"}

    assert backend.get_result(result.id) == result


def test_a_running_result_shows_the_attempt_of_its_lease(story: Story) -> None:
    story.fail(ValueError("full"), retry_after=0)
    lease = story.claim("w2")

    running = story.backend.running_result(lease, tasks.limited)
    assert running == story.result
    story.clock.set(30)
    assert story.backend.running_result(lease, tasks.limited) == running


@pytest.mark.parametrize("error", [None, ValueError("full")])
def test_a_finished_result_needs_no_second_look(story: Story, error: ValueError | None) -> None:
    lease = story.claim()
    running = story.backend.running_result(lease, tasks.limited)
    story.clock.set(3)
    if error:
        story.backend.queue("mail").fail(lease, error, retryable=False)
    else:
        story.backend.queue("mail").complete(lease, result=[1])

    told = finished_result(running, at=seconds(3), return_value=None if error else [1], error=error)
    assert told == story.result


@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_are_handed_out_as_django_does(
    backend: LeaseQueueBackend, settings: Any, use_tz: bool
) -> None:
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "America/New_York"
    result = tasks.send.using(run_after=timedelta(hours=1)).enqueue("ada")

    assert (result.enqueued_at.tzinfo is not None) == use_tz  # type: ignore[union-attr]
    assert result.task.run_after - result.enqueued_at == timedelta(hours=1)  # type: ignore[operator]
    assert backend.get_result(result.id) == result


@pytest.mark.parametrize("ending", ["done", "dead"])
def test_an_erased_result_says_how_it_ended_and_no_more(story: Story, ending: str) -> None:
    """G60"""
    mail = story.backend.queue("mail")
    if ending == "done":
        mail.complete(story.claim(), result="secret")
    else:
        mail.fail(story.claim(), ValueError("secret"), retryable=False)
    before = story.result

    assert mail.erase(story.id, by="ada")

    result = story.result
    assert (result.status, result.finished_at) == (before.status, before.finished_at)
    assert (result.args, result.kwargs) == ([], {})
    assert "secret" not in repr(result)
    if ending == "done":
        assert result.return_value is None
    else:
        assert [error.traceback for error in result.errors] == ["erased"]


def test_a_result_that_was_pruned_is_not_there_any_more(story: Story, clock: FakeClock) -> None:
    story.backend.queue("mail").complete(story.claim(), result="done")
    clock.advance(1)

    Walk(story.backend.store, {Kind.ACKED: 0.5}).step()

    with pytest.raises(TaskResultDoesNotExist):
        story.result  # noqa: B018
