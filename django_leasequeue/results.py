"""A life's log, read as a TaskResult of django.tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from .compat import TaskError, TaskResult, TaskResultStatus
from .errors import TaskCancelledError, TaskFailedError, WorkerVanishedError
from .failure import error_facts, type_path
from .records import Attempt
from .story import ADOPTED, VANISHED, attempts
from .tasks import LeaseTask, unvalidated, values
from .transitions import Kind, TaskRecord, Transition, born

# A duplicate enqueue changes nothing; every other kind of row tells how the task stands after it.
STATUSES: Final[Mapping[Kind, TaskResultStatus]] = {
    Kind.ENQUEUED: TaskResultStatus.READY,
    Kind.LEASED: TaskResultStatus.RUNNING,
    Kind.HEARTBEAT: TaskResultStatus.RUNNING,
    Kind.ACKED: TaskResultStatus.SUCCESSFUL,
    Kind.RETRIED: TaskResultStatus.READY,
    Kind.RELEASED: TaskResultStatus.READY,
    Kind.LAPSED: TaskResultStatus.READY,
    Kind.DEAD: TaskResultStatus.FAILED,
    Kind.DROPPED: TaskResultStatus.FAILED,
    Kind.REDRIVEN: TaskResultStatus.READY,
    Kind.CANCELLED: TaskResultStatus.FAILED,
}


def result_of(
    history: Sequence[Transition], *, task: LeaseTask[..., Any], backend: str
) -> TaskResult[..., Any]:
    """How the life that *history* tells of stands after its last row.

    Args:
        task: the code; how it was queued is taken from the log.
        backend: alias of the backend that is asked.
    """
    origin = born(history[0])
    call = origin.payload_value if isinstance(origin.payload_value, dict) else {}
    last = [row for row in history if row.kind is not Kind.DUPLICATE][-1]
    status = STATUSES[last.kind]
    tried = attempts(history)
    result: TaskResult[..., Any] = TaskResult(
        task=as_queued(task, origin, history[0].at, backend),
        id=str(origin.life),
        status=status,
        enqueued_at=local(history[0].at),
        started_at=local(tried[0].started_at) if tried else None,
        last_attempted_at=local(tried[-1].started_at) if tried else None,
        finished_at=None,
        args=call.get("args", []),
        kwargs=call.get("kwargs", {}),
        backend=backend,
        errors=list(errors(tried, last)),
        worker_ids=workers(tried, history),
    )
    if result.is_finished:
        object.__setattr__(result, "finished_at", local(last.at))
    object.__setattr__(result, "_return_value", last.facts.get("result"))
    return result


def as_queued(
    task: LeaseTask[..., Any], origin: TaskRecord, enqueued_at: datetime, backend: str
) -> LeaseTask[..., Any]:
    stored = {
        "priority": origin.priority,
        "backend": backend,
        "queue_name": origin.queue,
        "run_after": local(origin.visible_at) if origin.visible_at > enqueued_at else None,
        "tenant": origin.tenant,
        "dedupe_key": origin.dedupe_key,
    }
    return unvalidated(**values(task) | stored)


def local(at: datetime) -> datetime:
    """*at* as Django hands instants around: naive local time where ``USE_TZ`` is off."""
    return at if settings.USE_TZ else timezone.make_naive(at)


def workers(tried: Sequence[Attempt], history: Sequence[Transition]) -> list[str]:
    """The workers of the present round: a redrive starts the attempts again at 1."""
    round_ = sum(row.kind is Kind.REDRIVEN for row in history)
    return [attempt.worker for attempt in tried if attempt.round == round_]


def errors(tried: Sequence[Attempt], last: Transition) -> Iterator[TaskError]:
    """What went wrong, oldest first, in all rounds."""
    for attempt in tried:
        if attempt.error:
            yield task_error(attempt.error)
        elif attempt.outcome in (VANISHED, ADOPTED):
            yield task_error(error_facts(WorkerVanishedError(vanished(attempt))))
    if last.kind is Kind.CANCELLED:
        yield task_error(error_facts(TaskCancelledError(cancelled(last.facts))))


def task_error(facts: Mapping[str, Any]) -> TaskError:
    """An error of the log, in Django's form."""
    return TaskError(
        exception_class_path=facts["type"] or type_path(TaskFailedError()),
        traceback=facts["traceback"] or facts["message"],
    )


def vanished(attempt: Attempt) -> str:
    how = "was started anew" if attempt.outcome == ADOPTED else "let its lease pass"
    return f"worker {attempt.worker} {how} (attempt {attempt.attempt}, token {attempt.token})"


def cancelled(facts: Mapping[str, Any]) -> str:
    who = f"cancelled by {facts['by']}" if facts.get("by") else "cancelled"
    return f"{who}: {facts['reason']}" if facts.get("reason") else who
