"""One attempt: find the task's function, call it, say how it ended. Records nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, NoReturn

from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import TaskResult, heard, task_started
from django_leasequeue.errors import (
    LeaseLostError,
    LostReason,
    TaskNotAllowedError,
    TaskNotFoundError,
    TaskTimeout,
)
from django_leasequeue.results import called_with
from django_leasequeue.tasks import LeaseTask, failure_of, resolve

from .context import CurrentLease, LeaseContext, current, current_lease
from .deliveries import Delivery
from .heartbeats import Heartbeats
from .outage import OUTAGE

is_coroutine_function = cache(iscoroutinefunction)  # to look costs as much as to call a small task


@dataclass(eq=False, kw_only=True, slots=True)  # to make a frozen one takes four times as long
class Outcome:
    """What comes of an attempt, known bit by bit; ``error`` is None where it succeeded.

    ``task`` is None where it wasn't found: the attempt fails. ``unread``: the queue's database was
    away when its history was wanted, and the lease is given back. ``acked``: an atomic task has
    sent its acknowledgement itself. With an error beside it the commit failed, or it worked and its
    answer was lost, or a hook after it raised.
    """

    delivery: Delivery
    backend: LeaseQueueBackend
    task: LeaseTask[..., Any] | None = None
    told: TaskResult[..., Any] | None = None  # its ``task_result``, once it was asked for
    unread: bool = False
    result: Any = None
    error: BaseException | None = None
    acked: bool = False
    seconds: float = 0.0
    retryable: bool = True
    retry_after: float | None = None

    @property
    def task_result(self) -> TaskResult[..., Any]:
        """What the task and Django's receivers see of the attempt.

        Made when it is asked for: that takes longer than to run a small task.

        Raises:
            django.db.Error: there were attempts before, and the log can't be read.
        """
        if self.told is None:
            of = self.delivery.lease, self.task, self.delivery.history
            self.told = self.backend.running_result(*of)
        return self.told


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
        outcome = self.prepared(delivery)
        if outcome.task and not outcome.unread:
            # What a task makes current, such as a language, isn't any more for the next one.
            copy_context().run(self.perform, outcome, outcome.task)
        return self.judged(outcome)

    def perform(self, outcome: Outcome, task: LeaseTask[..., Any]) -> None:
        try:
            self.begin(outcome)
            with block_of(task, outcome.delivery):
                outcome.result = call(outcome, task)
                if task.atomic:
                    acknowledge(outcome.delivery, outcome.result)
                    outcome.acked = True
        except BaseException as raised:  # noqa: BLE001  SystemExit is a task's failure, too
            outcome.error = raised

    def prepared(self, delivery: Delivery) -> Outcome:
        """What is known before the task's code is reached; where it can't be, the error."""
        outcome = Outcome(delivery=delivery, backend=self.backend)
        try:
            outcome.task = self.task_at(delivery.lease.path)
        except (TaskNotAllowedError, TaskNotFoundError) as missing:
            outcome.error = missing
        if delivery.lease.previous_token is not None:
            try:
                _ = outcome.task_result  # here, where nothing of the task has begun
            except OUTAGE as outage:
                outcome.error, outcome.unread = outage, True
        return outcome

    def lapsed(self, delivery: Delivery) -> Outcome:
        """What comes of a lease that ran out before its task could start."""
        delivery.lost = delivery.lost or LostReason.LAPSED
        return Outcome(delivery=delivery, backend=self.backend)

    def begin(self, outcome: Outcome) -> None:
        """Make its lease the current one, and tell Django's receivers that it starts."""
        current.set(CurrentLease(outcome.delivery, self.heartbeats))
        if heard(task_started, logging.INFO):
            task_started.send_robust(type(self.backend), task_result=outcome.task_result)

    def judged(self, outcome: Outcome) -> Outcome:
        """The *outcome* of what is over, with what follows from it; asks the task's backoff."""
        error = outcome.error
        outcome.seconds = outcome.delivery.seconds_run()
        if isinstance(error, KeyboardInterrupt):
            self.interrupted()
        if error is not None and not outcome.unread:
            verdict = failure_of(outcome.task, error, outcome.task_result)
            outcome.retryable, outcome.retry_after = verdict
        return outcome

    def task_at(self, path: str) -> LeaseTask[..., Any]:
        """The task of that path; looked for until it is found."""
        task = self.found.get(path)
        if task is None:
            task = self.found[path] = resolve(path, self.backend.lease_options)
        return task

    def is_async(self, path: str) -> bool:
        """Whether there is an async task of that path."""
        try:
            return is_coroutine_function(self.task_at(path).func)
        except (TaskNotAllowedError, TaskNotFoundError):
            return False


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


def call(outcome: Outcome, task: LeaseTask[..., Any]) -> Any:
    """What the task's function returns; in a child that it has forked it doesn't return."""
    process = os.getpid()
    try:
        if is_coroutine_function(task.func):
            return async_to_sync(awaited)(outcome, task)
        args, kwargs = arguments(outcome, task)
        return task.func(*args, **kwargs)
    finally:
        if os.getpid() != process:
            leave(sys.exception())


def leave(error: BaseException | None) -> NoReturn:
    """End this process as Python would have: the sessions to the database are its parent's."""
    if not isinstance(error, SystemExit | None):
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or None
            stream.flush()
    code = error.code if isinstance(error, SystemExit) else error
    os._exit(code if isinstance(code, int) else int(code is not None))


def arguments(
    outcome: Outcome, task: LeaseTask[..., Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What the task's function is called with; from here on its time runs."""
    given = called_with(outcome.delivery.lease.payload)
    args, kwargs = given.get("args", []), given.get("kwargs", {})
    if task.timeout is not None:
        outcome.delivery.times_out_at = time.monotonic() + task.timeout
    if task.takes_context:
        args = [LeaseContext(task_result=outcome.task_result, lease=current_lease()), *args]
    return args, kwargs


children: ContextVar[set[asyncio.Task[Any]]] = ContextVar("leasequeue_children")


def owned(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
    """The loop's task for *coroutine*, noted with those of the queue's task that starts it."""
    # Not called a Coroutine: on Python 3.11 a loop's factory takes generators, too.
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **kwargs)
    if (own := children.get(None)) is not None:
        own.add(task)
        task.add_done_callback(own.discard)
    return task


async def awaited(outcome: Outcome, task: LeaseTask[..., Any]) -> Any:
    """The coroutine's answer; it is cancelled where it takes too long.

    What it started and left running ends with it, though the loop goes on.
    """
    args, kwargs = arguments(outcome, task)
    own: set[asyncio.Task[Any]] = set()
    before = children.set(own)
    try:
        if task.timeout is None:  # to enter none, and to gather nothing, is a tenth of a no-op
            return await task.func(*args, **kwargs)
        async with asyncio.timeout(task.timeout) as limit:
            return await task.func(*args, **kwargs)
    except TimeoutError:
        if task.timeout is None or not limit.expired():
            raise  # the task's own
        raise TaskTimeout(f"cancelled after {task.timeout:g} seconds") from None
    finally:
        children.reset(before)
        if own:
            for each in own:
                each.cancel()
            await asyncio.gather(*own, return_exceptions=True)


def beside_a_loop(work: Callable[[], None]) -> None:
    """Do *work* in a thread that has an event loop at its side.

    ``async_to_sync`` uses it; a loop made for each task costs six times as much.
    """

    async def beside() -> None:
        asyncio.get_running_loop().set_task_factory(owned)
        await sync_to_async(work, thread_sensitive=False)()

    asyncio.run(beside())
