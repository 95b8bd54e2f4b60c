"""The backend of django.tasks: where Django's words meet the queue's, and only here.

A TaskResult is read off the log, which keeps a life's story after the task has left the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Final, NoReturn
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from . import validation
from .compat import (
    BaseTaskBackend,
    P,
    R,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from .conf import Options, parse
from .errors import (
    InvalidTaskError,
    TaskCancelledError,
    TaskFailedError,
    TaskNotAllowedError,
    TaskNotFoundError,
    WorkerVanishedError,
)
from .failure import error_facts, type_path
from .lease import Lease
from .policy import positive
from .queue import Queue
from .records import Attempt
from .stores import store_for
from .stores.base import Clock, Store
from .story import ADOPTED, VANISHED, attempts, with_the_clock
from .tasks import (
    LeaseTask,
    check_importable,
    json_value,
    lease_task,
    refusals,
    resolve,
    unvalidated,
    values,
)
from .transitions import Kind, TaskRecord, Transition, born, fold_all

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


class LeaseQueueBackend(BaseTaskBackend):
    """Queues the tasks of django.tasks; ``leasequeue_worker`` runs them.

    ``clock`` is where the time comes from, None: the database. Tests set a FakeClock.
    """

    task_class = LeaseTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    leases_tasks = True  # by this the settings' other readers know our backends
    clock: Clock | None = None

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.opened: dict[str, Queue] = {}

    @cached_property
    def lease_options(self) -> Options:
        """The OPTIONS, parsed when first needed, so that a system check can tell what is wrong."""
        return parse(self.options)

    @cached_property
    def store(self) -> Store:
        return store_for(self.lease_options.using, self.clock)

    def queue(self, name: str) -> Queue:
        """The queue *name*, opened once."""
        if name not in self.opened:
            self.opened[name] = Queue(
                name,
                using=self.lease_options.using,
                policy=self.lease_options.policy_of(name),
                clock=self.clock,
            )
        return self.opened[name]

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse what can't be queued, or could not be found by a worker.

        Raises:
            RefusedTaskError: naming the field and its bound.
        """
        ours = lease_task(task)
        moment = ours.run_after if isinstance(ours.run_after, datetime) else None
        with refusals():
            super().validate_task(unvalidated(**values(ours) | {"run_after": moment}))
            check_importable(ours.func)
            self.check_limits(ours)

    def check_limits(self, task: LeaseTask[..., Any]) -> None:
        validation.instant("run_after", task.run_after)
        validation.name("queue", task.queue_name)
        validation.name("tenant", task.tenant, empty=True)
        if task.dedupe_key is not None:
            validation.name("dedupe_key", task.dedupe_key)
        if task.timeout is not None:
            positive("timeout", task.timeout)
        if task.backoff is not None and not callable(task.backoff):
            raise InvalidTaskError("backoff must be a function")
        self.lease_options.policy_of(task.queue_name).limits(
            max_attempts=task.max_attempts, visibility=task.visibility, max_lease=task.max_lease
        )

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        """Store one task, in the caller's transaction where there is one.

        Returns:
            Its result so far; of a duplicate, the result of the task that is stored already.

        Raises:
            RefusedTaskError: the task or an argument can't be stored; nothing was.
            QueueUnavailableError: the database can't be reached.
        """
        self.validate_task(task)
        ours = lease_task(task)
        with refusals("Unsupported type or value: "):  # Django's words, then where it is
            stored = self.queue(ours.queue_name).enqueue(
                {"args": json_value(args), "kwargs": json_value(kwargs)},
                path=ours.module_path,
                priority=int(ours.priority),
                run_after=ours.run_after,
                tenant=ours.tenant,
                dedupe_key=ours.dedupe_key,
                max_attempts=ours.max_attempts,
                visibility=ours.visibility,
                max_lease=ours.max_lease,
            )
        result: TaskResult[P, R] = self.get_result(str(stored.life))
        if not stored.duplicate:
            task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """How the task of that id stands by the clock, or ended.

        Raises:
            TaskResultDoesNotExist: no task of django.tasks had that id, or its log was pruned.
        """
        try:
            life = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        now = self.store.now()  # before the log is read: a heartbeat between the two counts
        history = self.store.history([life])
        if not history or history[0].kind is not Kind.ENQUEUED or not born(history[0]).path:
            raise TaskResultDoesNotExist(result_id)
        task = fold_all(history)
        return self.result_of(with_the_clock(task, history, now))

    def running_result(
        self, lease: Lease, task: LeaseTask[..., Any] | None
    ) -> TaskResult[..., Any]:
        """The result of the attempt that *lease* stands for, as its task function sees it.

        Args:
            task: as ``resolve`` found it; None: it didn't.
        """
        history = self.store.history([lease.life])
        before = [row for row in history if row.position <= lease.token]
        return self.result_of(before, task)

    def result_of(
        self, history: Sequence[Transition], task: LeaseTask[..., Any] | None = None
    ) -> TaskResult[..., Any]:
        origin = born(history[0])
        call = origin.payload_value if isinstance(origin.payload_value, dict) else {}
        last = [row for row in history if row.kind is not Kind.DUPLICATE][-1]
        status = STATUSES[last.kind]
        tried = attempts(history)
        over = status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
        result: TaskResult[..., Any] = TaskResult(
            task=self.task_as_stored(history[0], origin, task),
            id=str(origin.life),
            status=status,
            enqueued_at=local(history[0].at),
            started_at=local(tried[0].started_at) if tried else None,
            finished_at=local(last.at) if over else None,
            last_attempted_at=local(tried[-1].started_at) if tried else None,
            args=call.get("args", []),
            kwargs=call.get("kwargs", {}),
            backend=self.alias,
            errors=list(errors(tried, last)),
            worker_ids=workers(tried, history),
        )
        object.__setattr__(result, "_return_value", last.facts.get("result"))
        return result

    def task_as_stored(
        self, enqueued: Transition, origin: TaskRecord, task: LeaseTask[..., Any] | None
    ) -> LeaseTask[..., Any]:
        """The task's function with what was stored of it; of a lost function, one that says so."""
        scheduled = origin.visible_at > enqueued.at
        stored = {
            "priority": origin.priority,
            "backend": self.alias,
            "queue_name": origin.queue,
            "run_after": local(origin.visible_at) if scheduled else None,
            "tenant": origin.tenant,
            "dedupe_key": origin.dedupe_key,
        }
        try:
            code = values(task or resolve(origin.path, self.lease_options))
        except (TaskNotAllowedError, TaskNotFoundError):
            code = {"func": lost_function(origin.path), "takes_context": False}
        return unvalidated(**code | stored)


@cache  # so that two results of one task are equal
def lost_function(path: str) -> Callable[..., NoReturn]:
    """What stands for the function of a task that can't be found, or may not be imported."""

    def lost(*_: Any, **__: Any) -> NoReturn:
        raise TaskNotFoundError(path, "its result was read where it couldn't be imported")

    lost.__module__, _, lost.__name__ = path.rpartition(".")
    lost.__qualname__ = lost.__name__
    return lost


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
            yield as_task_error(attempt.error)
        elif attempt.outcome in (VANISHED, ADOPTED):
            yield as_task_error(error_facts(WorkerVanishedError(vanished(attempt))))
    if last.kind is Kind.CANCELLED:
        yield as_task_error(error_facts(TaskCancelledError(cancelled(last.facts))))


def as_task_error(facts: Mapping[str, Any]) -> TaskError:
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


def finished_result(
    running: TaskResult[..., Any],
    *,
    at: datetime,
    return_value: Any = None,
    error: BaseException | None = None,
) -> TaskResult[..., Any]:
    """*running* after its last attempt, for those who are told without asking the database.

    Args:
        at: when the attempt ended.
        return_value: as it was stored.
        error: why it failed; None: it didn't.
    """
    status = TaskResultStatus.FAILED if error else TaskResultStatus.SUCCESSFUL
    known = [*running.errors, *([as_task_error(error_facts(error))] if error else [])]
    result = replace(running, status=status, finished_at=local(at), errors=known)
    object.__setattr__(result, "_return_value", return_value)
    return result
