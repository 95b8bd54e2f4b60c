"""Async tasks side by side: one event loop, however many of them wait for something.

A thread of its own prepares each of them and tells Django's receivers that it starts: both may
ask a database, which nothing may on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from .context import CurrentLease, current
from .deliveries import Deliveries
from .runner import Attempt, Outcome, Runner, awaited, lapsed, owned
from .sessions import TaskSession

logger = logging.getLogger("django_leasequeue")

Answer = Coroutine[Any, Any, Any]


class Coroutines:
    """Runs the async tasks among *deliveries*.

    Args:
        ended: called with the outcome of each, on the loop's thread.
    """

    def __init__(
        self, runner: Runner, deliveries: Deliveries, ended: Callable[[Outcome], None]
    ) -> None:
        self.runner = runner
        self.deliveries = deliveries
        self.ended = ended
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(owned)
        self.prepared: deque[tuple[Attempt, Answer, Context]] = deque()
        self.stopping = False
        self.called = False  # the loop is to look at what is prepared
        self.running: set[asyncio.Task[None]] = set()  # the loop itself holds them only weakly
        self.session: TaskSession  # of the one thread in which all of them use a database
        self.ready = threading.Event()  # there is that session

    def run(self) -> None:
        """Run the loop until ``stop``."""
        asyncio.set_event_loop(self.loop)
        self.session = self.loop.run_until_complete(sync_to_async(TaskSession)())
        self.ready.set()
        while not self.stopping:
            # A child task's exit leaves the loop, which the others need; its parent learns of it.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        self.loop.run_until_complete(sync_to_async(connections.close_all)())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def stop(self) -> None:
        self.stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def launch(self) -> None:
        """Start one task after the other, as long as the worker hands them out."""
        session = TaskSession()
        self.ready.wait()
        while delivery := self.deliveries.take_coroutine():
            if delivery.seconds_left() <= 0:
                self.ended(lapsed(delivery))
                continue
            attempt = self.runner.prepared(delivery)
            task, task_result = attempt.task, attempt.task_result
            if task and task_result:
                context = copy_context()
                context.run(current.set, CurrentLease(delivery, self.runner.heartbeats))
                try:
                    context.run(self.runner.tell_started, attempt)
                except BaseException as raised:  # noqa: BLE001  it is the attempt's failure
                    attempt.error = raised
            if task and task_result and attempt.error is None:
                self.hand_over(attempt, awaited(delivery, task, task_result), context)
            else:
                self.ended(self.runner.outcome_of(attempt))
            session.tidy()

    def hand_over(self, attempt: Attempt, answer: Answer, context: Context) -> None:
        self.prepared.append((attempt, answer, context))
        if not self.called:  # one call for many: each costs a system call
            self.called = True
            self.loop.call_soon_threadsafe(self.start_prepared)

    def start_prepared(self) -> None:
        self.called = False  # what is prepared from here on calls again
        while self.prepared:
            attempt, answer, context = self.prepared.popleft()
            task = self.loop.create_task(self.follow(attempt, answer), context=context)
            self.running.add(task)
            task.add_done_callback(self.running.discard)

    async def follow(self, attempt: Attempt, answer: Answer) -> None:
        """Await the task's answer, and say how it ended."""
        delivery = attempt.delivery
        if delivery.lost or delivery.seconds_left() <= 0:  # the loop was busy meanwhile
            answer.close()
            self.ended(lapsed(delivery))
            return
        try:
            attempt.result = await answer
        except BaseException as raised:  # noqa: BLE001  SystemExit is a task's failure, too
            attempt.error = raised
        outcome = Outcome(
            delivery=delivery,
            seconds=delivery.seconds_run(),
            error=attempt.error,
            result=attempt.result,
            task_result=attempt.task_result,
        )
        try:
            if attempt.error is not None:
                outcome = await asyncio.to_thread(self.runner.outcome_of, attempt)
            if self.session.used():
                await sync_to_async(self.session.tidy)()
        except BaseException:  # a cancellation that the task left pending, say
            logger.exception("after the end of an async task")
        finally:
            self.ended(outcome)
