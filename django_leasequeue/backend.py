"""The backend of django.tasks. Results are read off the log: they outlive their task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from inspect import iscoroutinefunction
from itertools import count
from math import inf
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from . import validation
from .compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    heard,
    task_enqueued,
)
from .conf import Options, parse, queues_of
from .errors import InvalidTaskError
from .failure import error_facts
from .lease import Lease
from .policy import PRIORITY_MAX, PRIORITY_MIN, positive, whole, within
from .queue import Queue
from .records import Admitted, EnqueuedTask, NewTask
from .results import (
    QueuedResults,
    filled,
    first_result,
    local,
    queued_result,
    result_of,
    task_error,
)
from .stores import store_for
from .stores.base import Clock, Store
from .story import with_the_clock
from .tasks import (
    Arguments,
    LeaseTask,
    Refusals,
    arguments,
    check_importable,
    find,
    json_value,
    lease_task,
    lost,
    payloads_of,
    unvalidated,
    values,
)
from .transitions import Kind, Transition, born, fold_all

NOT_JSON: Final = "Unsupported type or value: "  # Django's words, before where it is


def how(task: LeaseTask[..., Any]) -> dict[str, Any]:
    """How *task* is queued, as ``Queue.enqueue`` takes it."""
    return {
        "path": task.module_path,
        "priority": int(task.priority),
        "run_after": task.run_after,
        "tenant": task.tenant,
        "dedupe_key": task.dedupe_key,
        "max_attempts": task.max_attempts,
        "visibility": task.visibility,
        "max_lease": task.max_lease,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is to know of a task function to queue it, found out once."""

    given: Task[..., Any]
    task: LeaseTask[..., Any]
    queue: Queue
    like: Admitted


class LeaseTaskBackend(BaseTaskBackend):
    """Takes our tasks, and refuses what couldn't be queued; what it does with them, others say."""

    task_class = LeaseTask

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.params = params
        try:
            queues = queues_of(alias, params)
        except ImproperlyConfigured:  # said at the first use, and by a check: checks need backends
            queues = ()
        super().__init__(alias, {**params, "QUEUES": queues})

    @cached_property
    def lease_options(self) -> Options:
        return parse(self.alias, self.params)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse what can't be queued, or could not be found by a worker.

        Raises:
            RefusedTaskError: naming the field and its bound.
        """
        ours = lease_task(task)
        priority: Any = ours.priority
        moment = ours.run_after if isinstance(ours.run_after, datetime) else None
        with Refusals():
            # Django compares before it asks what it compares.
            validation.name("queue", ours.queue_name)
            if not within(priority, -inf, inf):
                whole("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
            super().validate_task(unvalidated(**values(ours) | {"run_after": moment}))
            check_importable(ours.func)
            self.check_limits(ours)

    def enqueue_many(
        self, task: Task[..., Any], calls: Iterable[Arguments]
    ) -> Sequence[TaskResult[Any, Any]]:
        """Enqueue *task* once for each of *calls*; see LeaseTask."""
        with Refusals():
            each: list[Any] = list(map(arguments, count(), validation.items("calls", calls)))
        return [self.enqueue(task, args, kwargs) for args, kwargs in each]

    def check_limits(self, task: LeaseTask[..., Any]) -> None:
        validation.instant("run_after", task.run_after)
        validation.name("tenant", task.tenant, empty=True)
        if task.dedupe_key is not None:
            validation.name("dedupe_key", task.dedupe_key)
        if task.timeout is not None:
            positive("timeout", task.timeout)
        if task.backoff is not None and not callable(task.backoff):
            raise InvalidTaskError("backoff must be a function")
        if not isinstance(task.atomic, bool):
            raise InvalidTaskError("atomic must be True or False")
        if task.atomic and iscoroutinefunction(task.func):
            raise InvalidTaskError("atomic is for sync functions: async code has no transactions")
        self.lease_options.policy_of(task.queue_name).limits(
            max_attempts=task.max_attempts, visibility=task.visibility, max_lease=task.max_lease
        )


class LeaseQueueBackend(LeaseTaskBackend):
    """Queues the tasks of django.tasks; ``leasequeue_worker`` runs them.

    ``clock`` is where the time comes from, None: the database. Tests set a FakeClock.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    leases_tasks = True  # by this the settings' other readers know our backends
    clock: Clock | None = None

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.opened: dict[str, Queue] = {}
        # The last one of each function: tasks are frozen, and to look at one costs more than to
        # look at its arguments.
        self.known: dict[Callable[..., Any], Known] = {}

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

    def enqueue(
        self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[Any, Any]:
        """Store one task, in the caller's transaction where there is one.

        Returns:
            Its result so far; of a duplicate, the result of the task that is stored already.

        Raises:
            RefusedTaskError: the task or an argument can't be stored; nothing was.
            QueueUnavailableError: the database can't be reached.
        """
        known = self.look_at(task)
        call = {"args": json_value(args), "kwargs": json_value(kwargs)}
        with Refusals(NOT_JSON):
            stored = known.queue.enqueue_like(known.like, call)
        return self.told(known.task, stored, call)

    def enqueue_many(
        self, task: Task[..., Any], calls: Iterable[Arguments]
    ) -> Sequence[TaskResult[Any, Any]]:
        """Store many, all or none; see LeaseTask."""
        known = self.look_at(task)
        with Refusals():
            payloads = payloads_of(validation.items("calls", calls))
        queue = known.queue
        if known.like.dedupe_key is not None:  # the first holds it, the others are its duplicates
            new, each = how(known.task), list(map(json_value, payloads))
            with Refusals(NOT_JSON):
                held = queue.enqueue_many(NewTask(payload=payload, **new) for payload in each)
            return [self.told(known.task, *one) for one in zip(held, each, strict=True)]
        with Refusals(NOT_JSON):
            parts = list(queue.enqueue_alike(known.like, payloads))
        results = QueuedResults(known.task, parts, self.alias)
        if heard(task_enqueued, logging.DEBUG):
            for result in results:
                self.tell(result)
        return results

    def look_at(self, task: Task[..., Any]) -> Known:
        """*task* as it is to be queued."""
        known = self.known.get(task.func)
        if known is None or known.given is not task:
            self.validate_task(task)
            ours = lease_task(task)
            queue = self.queue(ours.queue_name)
            like = queue.like(NewTask(payload=None, **how(ours)))
            known = Known(given=task, task=ours, queue=queue, like=like)
            if not isinstance(task.run_after, datetime):  # with USE_TZ its meaning may change
                self.known[task.func] = known
        return known

    def told(
        self, task: LeaseTask[..., Any], stored: EnqueuedTask, call: Mapping[str, Any]
    ) -> TaskResult[Any, Any]:
        """The result of what is *stored*; of a new task Django's receivers are told."""
        if stored.duplicate:
            return self.get_result(str(stored.life))
        result = queued_result(task, stored, call, self.alias)
        if heard(task_enqueued, logging.DEBUG):
            self.tell(result)
        return result

    def tell(self, result: TaskResult[Any, Any]) -> None:
        """Django's receivers: robustly, since the task is stored whatever they make of that."""
        task_enqueued.send_robust(type(self), task_result=result)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """How the task of that id stands by the clock, or ended.

        Raises:
            TaskResultDoesNotExist: no task of django.tasks had that id, or its log was pruned.
        """
        now = self.store.now()  # before the log is read: a heartbeat between the two counts
        history = self.store.history([life]) if (life := validation.as_life(result_id)) else []
        if not history or history[0].kind is not Kind.ENQUEUED or not born(history[0]).path:
            raise TaskResultDoesNotExist(result_id)
        return self.read(with_the_clock(fold_all(history), history, now))

    def read(self, history: Sequence[Transition]) -> TaskResult[..., Any]:
        task = find(born(history[0]).path, self.lease_options)
        return result_of(history, task=task, backend=self.alias)

    def running_result(
        self,
        lease: Lease,
        task: LeaseTask[..., Any] | None,
        history: Sequence[Transition] | None = None,
    ) -> TaskResult[..., Any]:
        """The result of the attempt that *lease* stands for, as its task function sees it.

        Args:
            task: as ``resolve`` found it; None: it didn't.
            history: of the lease's life, where it is known already.
        """
        found = task or lost(lease.path)
        if lease.previous_token is None:
            return first_result(lease, task=found, backend=self.alias)
        rows = self.store.history([lease.life]) if history is None else history
        known = [row for row in rows if row.position <= lease.token]
        return result_of(known, task=found, backend=self.alias)


def finished_result(
    running: TaskResult[..., Any],
    *,
    at: datetime,
    return_value: Any,
    error: BaseException | None,
) -> TaskResult[..., Any]:
    """*running* after its last attempt, for those who are told without asking the database.

    It is the same object, as with Django's own backends: nobody else has it any more.

    Args:
        at: when the attempt ended.
        return_value: as it was stored.
        error: why it failed; None: it didn't.
    """
    status = TaskResultStatus.FAILED if error else TaskResultStatus.SUCCESSFUL
    if error:
        running.errors.append(task_error(error_facts(error)))
    return filled(running, status=status, finished_at=local(at), _return_value=return_value)
