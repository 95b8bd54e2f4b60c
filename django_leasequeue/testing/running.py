"""Running tasks, and the clock's part, inside a test's own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NoReturn, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import TaskResult, task_backends
from django_leasequeue.queue import Queue
from django_leasequeue.stores.base import BATCH, Clock
from django_leasequeue.worker.deliveries import Deliveries, Delivery
from django_leasequeue.worker.finisher import Finisher
from django_leasequeue.worker.heartbeats import Heartbeats
from django_leasequeue.worker.outage import Outage
from django_leasequeue.worker.runner import Outcome, Runner

from .clock import FakeClock

WORKER: Final = "run_tasks"
LIMIT: Final = 1000

T = TypeVar("T")


def run_tasks(
    *, backend: str = "default", queues: Sequence[str] | None = None, limit: int = LIMIT
) -> list[TaskResult[..., Any]]:
    """Run the due tasks of a backend's queues, here and now, as a worker would.

    In this thread and on this connection, so that a TestCase sees what they do. What they enqueue
    is run, too; a retry waits for its time (see ``use_clock``). Each handler runs in a savepoint:
    a database error in it leaves the connection usable. What a commit would set off (``on_commit``
    and the queue's signals) is set off after each task.

    Args:
        backend: key of TASKS.
        queues: served in this order; None: every queue of the backend that holds tasks.
        limit: stop after that many attempts; a task that enqueues itself would go on for ever.

    Returns:
        A result per attempt, in order, as it stood when the attempt was recorded.

    Raises:
        django.db.transaction.TransactionManagementError: inside the test's own ``atomic`` block.
        django.db.DatabaseError: a task went on after a database error that it caught outside an
            ``atomic`` block; the test's transaction can't do without.
    """
    ours = cast("LeaseQueueBackend", task_backends[backend])
    hands = Hands(ours)
    ran: list[TaskResult[..., Any]] = []
    while len(ran) < limit and (delivery := next_of(ours, queues)):
        ran.append(hands.run(delivery))
    return ran


def deliver(*queues: Queue, backend: str = "default") -> int:
    """Write down what the clock has done: leases that lapsed, tasks that died, delays that ended.

    Nothing depends on it, unless a test looks at the tables, or waits for the signals.

    Args:
        queues: which; none: every queue that holds tasks in the database of *backend*.
        backend: key of TASKS.

    Returns:
        How many tasks were written to.
    """
    ours = queues or queues_of(cast("LeaseQueueBackend", task_backends[backend]))
    with in_each(hooks_run):
        return sum(settled(queue) for queue in ours)


@contextmanager
def use_clock(clock: FakeClock, *, backend: str = "default") -> Iterator[FakeClock]:
    """Let the queues of *backend* take their time from *clock*.

    For a whole test: what was enqueued by the database's clock is due at another time.
    """
    ours = cast("LeaseQueueBackend", task_backends[backend])
    former = ours.clock
    set_clock(ours, clock)
    try:
        yield clock
    finally:
        set_clock(ours, former)


def set_clock(backend: LeaseQueueBackend, clock: Clock | None) -> None:
    backend.clock = clock
    backend.opened.clear()
    backend.__dict__.pop("store", None)  # it is made anew when it is next asked for


def queues_of(backend: LeaseQueueBackend) -> list[Queue]:
    """The backend's queues that hold tasks."""
    # Settings name the backends of this package: they are imported before there are models.
    from django_leasequeue.models import Task  # noqa: PLC0415

    held = Task.objects.using(backend.store.using).values_list("queue", flat=True)
    names = sorted(held.order_by().distinct())
    return [backend.queue(name) for name in names if name in (backend.queues or names)]


def next_of(backend: LeaseQueueBackend, names: Sequence[str] | None) -> Delivery | None:
    """The next task to run, under a lease."""
    named = queues_of(backend) if names is None else [backend.queue(name) for name in names]
    for queue in named:
        sent_at = time.monotonic()
        for lease in queue.claim(worker=WORKER):
            return Delivery(queue=queue, lease=lease, sent_at=sent_at, started_at=sent_at)
    return None


def settled(queue: Queue) -> int:
    written = batch = queue.store.settle(queue.name)
    while batch == BATCH:
        written += (batch := queue.store.settle(queue.name))
    return written


class CallsAtOnce(Heartbeats):
    """Makes the calls of a running task where it runs: a test has one connection."""

    def ask(self, call: Callable[[], T]) -> T:
        return call()

    async def aask(self, call: Callable[[], T]) -> T:
        return await sync_to_async(call)()


class Hands:
    """A worker's runner and finisher, without its threads."""

    def __init__(self, backend: LeaseQueueBackend) -> None:
        deliveries, outage = Deliveries(1, nothing), Outage()
        self.backend = backend
        self.runner = Runner(backend, CallsAtOnce(deliveries, outage, nothing), interrupted)
        self.finisher = Finisher(backend, deliveries, outage)

    def run(self, delivery: Delivery) -> TaskResult[..., Any]:
        """Run one attempt and record it."""
        with in_each(hooks_run):
            self.finisher.record([self.outcome(delivery)])
        return self.backend.read(self.backend.store.history([delivery.lease.life]))

    def outcome(self, delivery: Delivery) -> Outcome:
        outcome: Outcome | None = None
        try:
            with in_each(savepoint):
                outcome = self.runner.run(delivery)
        except DatabaseError:
            # The savepoint was broken and is rolled back: right, if that is how the task failed.
            if outcome is None or outcome.error is None:
                raise
        return outcome


def nothing() -> None:
    """Nobody waits."""


def interrupted() -> NoReturn:
    """Ctrl-C is meant for the test run."""
    raise KeyboardInterrupt


@contextmanager
def in_each(block: Callable[[BaseDatabaseWrapper], AbstractContextManager[Any]]) -> Iterator[None]:
    """Inside a *block* of each connection in a test's transaction; elsewhere commits are real."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(block(connection))
        yield


def savepoint(connection: BaseDatabaseWrapper) -> transaction.Atomic:
    """A savepoint that doesn't count as the task's own block, just as the test's doesn't."""
    block = transaction.atomic(using=connection.alias)
    block._from_testcase = True  # type: ignore[attr-defined]
    return block


@contextmanager
def hooks_run(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Run at the end what a commit would run; what waited before goes on waiting."""
    known = len(connection.run_on_commit)
    with TestCase.captureOnCommitCallbacks(using=connection.alias, execute=True):
        yield
    del connection.run_on_commit[known:]
