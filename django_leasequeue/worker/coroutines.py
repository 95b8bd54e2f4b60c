"""Async tasks side by side: one event loop, however many of them wait for something.

A thread of its own prepares each of them and tells Django's receivers that it starts, another one
judges failures: all of that may ask a database, which nothing may on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import connections

from django_leasequeue.tasks import LeaseTask

from .deliveries import Deliveries
from .runner import Outcome, Runner, awaited, owned
from .sessions import TaskSession

# What never waits for anything is over at once, without a further turn of the loop.
EAGERLY: Final[dict[str, Any]] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
SILENCE_SECONDS: Final = 5.0  # of a loop, when a task has it whose lease is over

logger = logging.getLogger("django_leasequeue")


class Coroutines:
    """Runs the async tasks among *deliveries*.

    Args:
        ended: called with the outcome of each, by one thread or another.
    """

    def __init__(
        self, runner: Runner, deliveries: Deliveries, ended: Callable[[Outcome], None]
    ) -> None:
        self.runner = runner
        self.deliveries = deliveries
        self.ended = ended
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(owned)
        self.prepared: deque[tuple[Coroutine[Any, Any, None], Context]] = deque()
        self.end: asyncio.Future[None] = self.loop.create_future()  # comes when it is to stop
        self.called = False  # the loop is to look at what is prepared
        self.running: set[asyncio.Task[None]] = set()  # the loop itself holds them only weakly
        self.asked_at: float | None = None  # whether it is still there; it has yet to answer
        self.failures: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self.session: TaskSession  # of the one thread in which all of them use a database
        self.ready = threading.Event()  # there is that session

    def run(self) -> None:
        """Run the loop until ``stop``."""
        asyncio.set_event_loop(self.loop)
        self.session = self.loop.run_until_complete(sync_to_async(TaskSession)())
        self.ready.set()
        while not self.end.done():
            # A child task's exit leaves the loop, which the others need; its parent learns of it.
            # RuntimeError: a task has stopped the loop.
            with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
                self.loop.run_until_complete(self.end)
        self.loop.run_until_complete(sync_to_async(connections.close_all)())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def stop(self) -> None:
        self.failures.put(None)
        # Not the loop's stop(): it would break off what the loop does before and after it runs.
        self.loop.call_soon_threadsafe(self.end.set_result, None)

    def blocked(self) -> bool:
        """Whether a task whose lease is over keeps the loop from all others.

        Asks the loop, too: it has until a later call to answer.
        """
        if self.end.done() or not self.deliveries.any_stuck_afloat():
            return False
        asked_at, now = self.asked_at, time.monotonic()
        if asked_at is None:
            self.asked_at = now
            self.loop.call_soon_threadsafe(self.answer)
        return asked_at is not None and now - asked_at > SILENCE_SECONDS

    def answer(self) -> None:
        self.asked_at = None

    def launch(self) -> None:
        """Start one task after the other, as long as the worker hands them out."""
        session = TaskSession()
        self.ready.wait()
        while delivery := self.deliveries.take_coroutine():
            if delivery.seconds_left() <= 0:
                self.ended(self.runner.lapsed(delivery))
                continue
            outcome = self.runner.prepared(delivery)
            task = None if outcome.unread else outcome.task
            if task:
                context = copy_context()
                try:
                    context.run(self.runner.begin, outcome)
                except BaseException as raised:  # noqa: BLE001  it is the attempt's failure
                    outcome.error = raised
            if task and outcome.error is None:
                self.hand_over(self.follow(outcome, task), context)
            else:
                self.ended(self.runner.judged(outcome))
            session.tidy()

    def judge(self) -> None:
        """Say what follows from each failure: the site's backoff, too, may ask a database."""
        session = TaskSession()
        while outcome := self.failures.get():
            self.ended(self.runner.judged(outcome))
            session.tidy()

    def hand_over(self, run: Coroutine[Any, Any, None], context: Context) -> None:
        self.prepared.append((run, context))
        if not self.called:  # one call for many: each costs a system call
            self.called = True
            self.loop.call_soon_threadsafe(self.start_prepared)

    def start_prepared(self) -> None:
        self.called = False  # what is prepared from here on calls again
        for _ in range(len(self.prepared)):  # no more: some are over at once, and let others come
            run, context = self.prepared.popleft()
            task = asyncio.Task(run, loop=self.loop, context=context, **EAGERLY)
            if not task.done():
                self.running.add(task)
                task.add_done_callback(self.running.discard)

    async def follow(self, outcome: Outcome, task: LeaseTask[..., Any]) -> None:
        """Await the task's answer, and say how it ended; a failure is judged first."""
        delivery = outcome.delivery
        if delivery.lost or delivery.seconds_left() <= 0:  # the loop was busy meanwhile
            self.ended(self.runner.lapsed(delivery))
            return
        try:
            outcome.result = await awaited(outcome, task)
        except BaseException as raised:  # noqa: BLE001  SystemExit is a task's failure, too
            outcome.error = raised
        if outcome.error is None:
            self.ended(self.runner.judged(outcome))
        else:
            self.failures.put(outcome)
        try:
            if self.session.used():
                # Whoever uses a database after this comes behind it: they share one thread.
                await sync_to_async(self.session.tidy)()
        except BaseException:  # a cancellation that the task left pending, say
            logger.exception("after the end of an async task")
