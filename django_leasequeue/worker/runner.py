"""One attempt: find the task's function, call it, say how it ended. Records nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import TaskResult, task_started
from django_leasequeue.errors import (
    LeaseLostError,
    TaskNotAllowedError,
    TaskNotFoundError,
    TaskTimeout,
)
from django_leasequeue.tasks import LeaseTask, failure_of, resolve

from .context import CurrentLease, LeaseContext, current_lease, running
from .deliveries import Delivery
from .heartbeats import Heartbeats
from .outage import OUTAGE


@dataclass(eq=False, kw_only=True, slots=True)  # to make a frozen one takes four times as long
class Outcome:
    """How an attempt ended; ``error`` is None where it succeeded.

    ``task_result`` is None where the task's code was never reached: the lease is given back.
    ``acked``: an atomic task has sent its acknowledgement itself. With an error beside it the
    commit failed, or it worked and its answer was lost, or a hook after it raised.
    """

    delivery: Delivery
    seconds: float
    result: Any = None
    error: BaseException | None = None
    retryable: bool = True
    retry_after: float | None = None
    task_result: TaskResult[..., Any] | None = None
    acked: bool = False


class Runner:
    """Runs tasks in the thread that calls it.

    Args:
        interrupted: called when a task raised KeyboardInterrupt: the worker is to stop.
    """

    def __init__(
        self,
        backend: LeaseQueueBackend,
        heartbeats: Heartbeats,
        interrupted: Callable[[], None],
    ) -> None:
        self.backend = backend
        self.heartbeats = heartbeats
        self.interrupted = interrupted
        self.found: dict[str, LeaseTask[..., Any]] = {}

    def run(self, delivery: Delivery) -> Outcome:
        """The outcome of the attempt. Whatever the task raises is part of it."""
        result, task, acked = None, None, False
        error: BaseException | None = None
        try:
            task = self.task_at(delivery.lease.path)
        except (TaskNotAllowedError, TaskNotFoundError) as missing:
            error = missing
        try:
            task_result = self.backend.running_result(delivery.lease, task, delivery.history)
        except OUTAGE as outage:
            return Outcome(delivery=delivery, seconds=0.0, error=outage)
        if task is not None:
            try:
                with running(CurrentLease(delivery, self.heartbeats)):
                    task_started.send_robust(type(self.backend), task_result=task_result)
                    with block_of(task, delivery):
                        result = call(delivery, task, task_result)
                        if task.atomic:
                            acknowledge(delivery, result)
                            acked = True
            except BaseException as raised:  # noqa: BLE001  SystemExit is a task's failure, too
                error = raised
        if isinstance(error, KeyboardInterrupt):
            self.interrupted()
        retryable, retry_after = (
            failure_of(task, error, task_result) if error is not None else (True, None)
        )
        return Outcome(
            delivery=delivery,
            seconds=delivery.seconds_run(),
            result=result,
            error=error,
            retryable=retryable,
            retry_after=retry_after,
            task_result=task_result,
            acked=acked,
        )

    def task_at(self, path: str) -> LeaseTask[..., Any]:
        """The task of that path; looked for until it is found."""
        task = self.found.get(path)
        if task is None:
            task = self.found[path] = resolve(path, self.backend.lease_options)
        return task


def block_of(task: LeaseTask[..., Any], delivery: Delivery) -> AbstractContextManager[None]:
    """What the task's body runs in: where it is atomic, a transaction that nothing encloses."""
    if not task.atomic:
        return nullcontext()
    return transaction.atomic(using=delivery.queue.using, durable=True)


def acknowledge(delivery: Delivery, result: Any) -> None:
    """Acknowledge in the transaction of the task's body, so that both commit or neither does."""
    delivery.being_recorded()
    try:
        delivery.queue.complete(delivery.lease, result=result)
    except LeaseLostError as error:
        delivery.lost = error.reason
        raise


def call(delivery: Delivery, task: LeaseTask[..., Any], task_result: TaskResult[..., Any]) -> Any:
    """What the task's function returns."""
    args: list[Any] = list(task_result.args)
    if task.takes_context:
        args.insert(0, LeaseContext(task_result=task_result, lease=current_lease()))
    if task.timeout is not None:
        delivery.times_out_at = time.monotonic() + task.timeout
    if iscoroutinefunction(task.func):
        return async_to_sync(awaited)(task, args, task_result.kwargs)
    return task.func(*args, **task_result.kwargs)


async def awaited(task: LeaseTask[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The coroutine's answer; it is cancelled where it takes too long.

    What it started and left running ends with it, though the loop goes on.
    """
    before = asyncio.all_tasks()
    try:
        async with asyncio.timeout(task.timeout) as limit:
            return await task.func(*args, **kwargs)
    except TimeoutError:
        if not limit.expired():
            raise  # the task's own
        raise TaskTimeout(f"cancelled after {task.timeout:g} seconds") from None
    finally:
        if left := asyncio.all_tasks() - before:
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def beside_a_loop(work: Callable[[], None]) -> None:
    """Do *work* in a thread that has an event loop at its side.

    ``async_to_sync`` uses it; a loop made for each task costs six times as much.
    """
    asyncio.run(sync_to_async(work, thread_sensitive=False)())
