"""A life's log, read as a TaskResult of django.tasks. Pure."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, overload

from django.conf import settings
from django.utils import timezone

from .compat import TaskError, TaskResult, TaskResultStatus
from .errors import TaskCancelledError, TaskFailedError, WorkerVanishedError
from .failure import error_facts, type_path
from .lease import Lease
from .records import Attempt, EnqueuedTask, Part
from .story import ADOPTED, VANISHED, attempts
from .tasks import LeaseTask, unvalidated, values
from .transitions import ASIDES, Kind, Transition, born

# Those left out change nothing; every other kind of row tells how the task stands after it.
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
SLOTS: Final[Mapping[str, Callable[..., None]]] = {
    field.name: getattr(TaskResult, field.name).__set__ for field in fields(TaskResult)
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
    call = called_with(origin.payload_value)
    last = [row for row in history if row.kind not in ASIDES][-1]
    status = STATUSES[last.kind]
    tried = attempts(history)
    result: TaskResult[..., Any] = TaskResult(
        task=as_queued(
            task,
            backend=backend,
            queue_name=origin.queue,
            tenant=origin.tenant,
            priority=origin.priority,
            dedupe_key=origin.dedupe_key,
            run_after=wait_until(history[0].at, origin.visible_at),
        ),
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
    finished_at = local(last.at) if result.is_finished else None
    return filled(result, finished_at=finished_at, _return_value=last.facts.get("result"))


def queued_result(
    task: LeaseTask[..., Any], stored: EnqueuedTask, call: Mapping[str, Any], backend: str
) -> TaskResult[..., Any]:
    """How a task stands that was *stored* just now: as ``result_of`` says, the log unread.

    Args:
        call: its payload.
    """
    queued = as_queued(
        task, backend=backend, run_after=wait_until(stored.enqueued_at, stored.visible_at)
    )
    # What is queued by its function has no id but that of its life.
    return unfinished(queued, stored.id, TaskResultStatus.READY, stored.enqueued_at, call)


class QueuedResults(Sequence["TaskResult[..., Any]"]):
    """The results of tasks that were stored just now, each made when it is first asked for.

    To make one takes longer than to store its task.

    Args:
        parts: the stored tasks.
    """

    def __init__(
        self,
        task: LeaseTask[..., Any],
        parts: Sequence[Part],
        backend: str,
    ) -> None:
        self.task = task
        self.parts = parts
        self.ends = list(accumulate(len(part.tasks) for part in parts))
        self.backend = backend
        self.made: dict[int, TaskResult[..., Any]] = {}

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    @overload
    def __getitem__(self, index: int) -> TaskResult[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskResult[..., Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        if places not in self.made:
            number = bisect_right(self.ends, places)
            part, place = self.parts[number], places - self.ends[number]  # from the part's end
            call = json.loads(part.payloads[place])
            self.made[places] = queued_result(self.task, part.tasks[place], call, self.backend)
        return self.made[places]


def first_result(lease: Lease, *, task: LeaseTask[..., Any], backend: str) -> TaskResult[..., Any]:
    """How a task stands at its first delivery: as ``result_of`` says, the log unread."""
    queued = as_queued(
        task,
        backend=backend,
        queue_name=lease.queue,
        tenant=lease.tenant,
        priority=lease.priority,
        dedupe_key=lease.dedupe_key,
        run_after=wait_until(lease.enqueued_at, lease.visible_since),
    )
    call = called_with(lease.payload)
    started = local(lease.leased_at)
    running = TaskResultStatus.RUNNING
    id = str(lease.life)
    return unfinished(queued, id, running, lease.enqueued_at, call, started, [lease.worker])


def called_with(payload: Any) -> Mapping[str, Any]:
    """The arguments of the task's function; none where its *payload* isn't of django.tasks."""
    return payload if isinstance(payload, dict) else {}


def unfinished(
    task: LeaseTask[..., Any],
    id: str,
    status: TaskResultStatus,
    enqueued_at: datetime,
    call: Mapping[str, Any],
    started_at: datetime | None = None,
    worker_ids: Sequence[str] = (),
) -> TaskResult[..., Any]:
    """A result that nothing has come of yet.

    Made by hand: the arguments were read from JSON, and ``__init__`` would make JSON of them again.
    """
    return filled(
        object.__new__(TaskResult),
        task=task,
        id=id,
        status=status,
        enqueued_at=local(enqueued_at),
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=None,
        args=call.get("args", []),
        kwargs=call.get("kwargs", {}),
        backend=task.backend,
        errors=[],
        worker_ids=list(worker_ids),
        _return_value=None,
    )


def filled(result: TaskResult[..., Any], **facts: Any) -> TaskResult[..., Any]:
    """*result*, frozen as it is, with *facts*: to copy it takes longer than to run a small task."""
    for name, value in facts.items():
        SLOTS[name](result, value)
    return result


def wait_until(enqueued_at: datetime, visible_at: datetime) -> datetime | None:
    """The ``run_after`` of a task that was first to become visible at *visible_at*."""
    return local(visible_at) if visible_at > enqueued_at else None


def as_queued(task: LeaseTask[..., Any], **stored: Any) -> LeaseTask[..., Any]:
    """*task* with what was *stored* of it; itself where that is what its code says."""
    for name, value in stored.items():
        if getattr(task, name) != value:
            return unvalidated(**values(task) | stored)
    return task


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
