"""The life of a lease in a worker.

    claimer     claims what can start soon, hands it over; sleeps where there is nothing to do
      │
      ▼
    runner      one per thread of the site's choice: finds the function, calls it; or the
      │    ╎    coroutines, one event loop for all async tasks, where the site wants that
      │    ╎····· heartbeats   renew what has used up a third of its lease
      ▼
    finisher    records how it ended, in batches where many end at once

Each of them is a thread with database connections of its own, so that no task can delay, poison
or undo the bookkeeping. A worker has at most ``threads + 5`` database sessions: one each to claim,
to renew and to record, the one that listens, and now and then the upkeep's: see there.

The main thread does none of this: it waits. A signal therefore never interrupts a claim or a
commit; its handler leaves a note, and the main thread reads it:

1.  the first note: nothing is claimed or started any more, what never started is given back, what
    runs may end within the grace, renewed all the while;
2.  the second note, or the end of the grace: the process leaves, with a status other than 0. The
    leases of what was running lapse, and other workers take over.

Nothing starts on a lease that has run out, judged by the seconds the database gave it and the
time since the claim was sent.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from django.db import connections, transaction

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.errors import TaskTimeout
from django_leasequeue.polling import sleeper_for
from django_leasequeue.wakeups import unpooled

from .claimer import Claimer
from .context import CurrentLease, LeaseContext, current_lease
from .coroutines import Coroutines
from .deliveries import Deliveries
from .finisher import Finisher
from .heartbeats import Heartbeats
from .names import HeldName
from .outage import Outage
from .presence import Presence
from .readiness import (
    CannotStartError,
    refuse_old_servers,
    refuse_pending_migrations,
    refuse_used_tokens,
)
from .runner import Outcome, Runner, beside_a_loop, lapsed
from .sessions import TaskSession
from .upkeep import Upkeep

__all__ = ["CurrentLease", "LeaseContext", "TaskTimeout", "Worker", "current_lease"]

GRACE_SECONDS: Final = 25.0  # Kubernetes kills after 30
CLAIM_PATIENCE_SECONDS: Final = 3.0  # for a claim under way when the worker is to stop
THREAD_PATIENCE_SECONDS: Final = 1.0

logger = logging.getLogger("django_leasequeue")


def new_name() -> str:
    """A worker's name, unique per start: containers share host names and process numbers."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"


def at_once(work: Callable[[], None]) -> None:
    """Do *work* as it is."""
    work()


class Worker:
    """Works on the tasks of some queues until it is told to stop.

    Args:
        backend: whose tasks they are.
        queues: names, served in this order: what the first one holds goes first.
        name: of one live worker at a time; what it has leased comes back when it starts anew.
            None: a new one.
        threads: tasks that may run at a time.
        async_tasks: async ones that may do so beside them, on one event loop; 0: in the threads.
        strict: a thread's next task starts when the outcome of the one before is on record.
        max_tasks: stop after that many.
        drain: stop when nothing is visible any more.
        grace: seconds that running tasks have once the worker is told to stop.
        poll_interval: seconds between two looks where no notification comes; None: as OPTIONS say.
    """

    def __init__(
        self,
        backend: LeaseQueueBackend,
        queues: Sequence[str],
        *,
        name: str | None = None,
        threads: int = 1,
        async_tasks: int = 0,
        strict: bool = False,
        max_tasks: int | None = None,
        drain: bool = False,
        grace: float = GRACE_SECONDS,
        poll_interval: float | None = None,
    ) -> None:
        options = backend.lease_options
        self.queues = [backend.queue(queue) for queue in queues]
        self.threads = threads
        self.grace = grace
        self.sleeper = sleeper_for(options.using, queues, None, options)
        # Notes for the main thread: True to stop, False to look again. Its put() can be
        # interrupted by a signal handler that puts, where a lock or an event would deadlock.
        self.notes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stops = 0
        self.failed = False
        self.ready = False
        self.refusal: CannotStartError | None = None
        self.stopping = threading.Event()
        self.claiming = True
        self.helpers: list[threading.Thread] = []
        self.runners: list[threading.Thread] = []
        self.outage = Outage()
        self.name = name or new_name()
        self.held_name = HeldName(name, self.queues[0], self.outage) if name else None
        emptied = partial(self.notes.put, False)
        self.deliveries = Deliveries(threads, emptied, coroutines=async_tasks, strict=strict)
        self.heartbeats = Heartbeats(self.deliveries, self.outage, self.refuse_to_be_stuck)
        self.finisher = Finisher(backend, self.deliveries, self.outage)
        self.runner = Runner(backend, self.heartbeats, self.stop)
        self.coroutines = (
            Coroutines(self.runner, self.deliveries, self.ended) if async_tasks else None
        )
        self.claimer = Claimer(
            self.name,
            self.queues,
            self.deliveries,
            self.heartbeats,
            self.sleeper,
            self.outage,
            self.get_ready,
            self.runner.is_async,
            max_tasks=max_tasks,
            drain=drain,
            poll_interval=options.poll_interval if poll_interval is None else poll_interval,
            stopping=self.stopping,
        )
        self.presence = Presence(self.name, self.queues, threads, self.deliveries, self.sleeper)
        self.upkeep = Upkeep(self.name, self.queues, options.retention, self.presence)

    def run(self) -> int:
        """Work; return when there is nothing more to do, or a stop was asked for.

        Returns:
            The process's exit status: 0 where every task has ended and is recorded. Otherwise
            threads may be running still: end the process.

        Raises:
            CannotStartError: the tables aren't up to date, or another live worker has the name.
            TransactionManagementError: inside a transaction, whose tasks no thread of ours sees.
        """
        self.refuse_inside_transaction()
        self.start("claimer", self.claimer.run)
        for number in range(self.threads):
            runner = self.start(f"runner-{number + 1}", self.run_tasks, within=beside_a_loop)
            self.runners.append(runner)
        if self.coroutines:
            self.helpers.append(self.start("loop", self.coroutines.run, within=at_once))
            self.start("launcher", self.coroutines.launch, within=at_once)
        self.helpers += [
            self.start("heartbeats", self.heartbeats.run),
            self.start("finisher", self.finisher.run),
        ]
        self.start("upkeep", self.upkeep.run)
        self.wait_for(lambda: not self.claiming and not self.deliveries.in_hand(), stops=1)
        clean = self.wind_down()
        if self.refusal:
            raise self.refusal
        logger.info("stopped worker=%s%s", self.name, "" if clean else " leaving work behind")
        return 0 if clean and not (self.failed or self.claimer.failed) else 1

    def stop(self) -> None:
        """Ask the worker to stop; a second time: at once. From any thread or signal handler."""
        self.notes.put(True)

    def wind_down(self) -> bool:
        """Stop claiming, let run what runs, record it; whether all of that came to its end."""
        if self.stops and self.ready:
            running = len(self.deliveries.running) + len(self.deliveries.afloat)
            grace = self.grace
            logger.info("stopping worker=%s running=%d grace=%gs", self.name, running, grace)
        self.stopping.set()
        self.deliveries.close()
        self.sleeper.wake()
        end = time.monotonic() + self.grace
        if not self.wait_for(lambda: not self.claiming, seconds=CLAIM_PATIENCE_SECONDS):
            logger.warning("the claim under way doesn't end")
        self.wait_for(lambda: not self.deliveries.in_hand(), seconds=end - time.monotonic())
        for left in (each.lease for each in self.deliveries.in_hand()):
            facts = (left.queue, left.id, left.attempt, left.token)
            logger.warning("unfinished queue=%s id=%s attempt=%d token=%d", *facts)
        if self.coroutines:
            self.coroutines.stop()
        self.heartbeats.stop()
        self.finisher.stop()
        if self.held_name:
            self.held_name.release()
        if not self.deliveries.in_hand():
            self.helpers += self.runners  # idle: their loops end, too, before the interpreter does
        for helper in self.helpers:
            helper.join(THREAD_PATIENCE_SECONDS)
        self.upkeep.stop(THREAD_PATIENCE_SECONDS)  # the others' last refusals count, too
        return not self.claiming and not self.deliveries.in_hand()

    def wait_for(
        self, condition: Callable[[], bool], *, seconds: float = inf, stops: int = 2
    ) -> bool:
        """Return when *condition* is true, or false after *seconds* or that many stops."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if self.stops >= stops or left <= 0:
                return False
            with suppress(queue.Empty):
                self.stops += self.notes.get(timeout=None if left == inf else left)
        return True

    def start(
        self,
        name: str,
        work: Callable[[], None],
        within: Callable[[Callable[[], None]], None] | None = None,
    ) -> threading.Thread:
        guarded = partial(self.guarded, name, work)
        target = within or self.outside_the_pool
        thread = threading.Thread(target=target, args=[guarded], name=name, daemon=True)
        thread.start()
        return thread

    def outside_the_pool(self, work: Callable[[], None]) -> None:
        """Do *work* on sessions of our own: tasks may keep all that the site's pool has."""
        using = self.queues[0].using
        connections[using] = unpooled(using)
        work()

    def guarded(self, name: str, work: Callable[[], None]) -> None:
        """Do *work*; should it ever fail, the worker stops and its supervisor starts another."""
        try:
            work()
        except CannotStartError as refusal:
            self.refusal = refusal
            self.stop()
        except BaseException:
            logger.exception("the worker's %s failed", name)
            self.failed = True
            self.stop()
        finally:
            connections.close_all()
            if name == "claimer":  # asked in place of is_alive(), still true when the note is read
                self.claiming = False
            self.notes.put(False)

    def refuse_inside_transaction(self) -> None:
        using = self.queues[0].using
        if connections[using].in_atomic_block:
            raise transaction.TransactionManagementError(
                "a worker can't run inside a transaction: its threads would not see the tasks. In "
                "a TestCase use django_leasequeue.testing.run_tasks(), or a TransactionTestCase"
            )

    def refuse_to_be_stuck(self) -> None:
        """Stop where no task could start any more: a supervisor starts another worker."""
        blocked = self.coroutines and self.coroutines.blocked()
        if (blocked or self.deliveries.all_stuck()) and not self.failed:
            place = "the event loop" if blocked else "every thread, or place on the loop,"
            logger.error("%s is stuck in a task whose lease is over", place)
            self.failed = True
            self.stop()

    # The claimer's thread, before its first claim

    def get_ready(self) -> None:
        """Once, before the first claim: the tables are there, the name and what it held are ours.

        Raises:
            CannotStartError: they aren't.
        """
        if self.ready:
            return
        refuse_old_servers(self.queues[0].using)
        refuse_pending_migrations(self.queues[0].using)
        refuse_used_tokens(self.queues[0].using)
        if self.held_name and not self.take_name(self.held_name):
            return
        self.ready = True
        queues = ",".join(source.name for source in self.queues)
        database = connections[self.queues[0].using].vendor
        logger.info(
            "started worker=%s queues=%s threads=%d database=%s",
            *(self.name, queues, self.threads, database),
        )
        self.presence.begin()

    def take_name(self, held: HeldName) -> bool:
        """Hold the configured name, and take back what its last bearer had leased."""
        if not held.taken:
            if not held.take(self.stopping):
                return False
            self.helpers.append(self.start("name", held.keep))
        for source in self.queues:
            for task in source.adopt(worker=self.name):
                facts = (task.queue, task.id, task.attempt, task.token)
                logger.warning("adopted queue=%s id=%s attempt=%d token=%d", *facts)
        return True

    # The runners' threads

    def run_tasks(self) -> None:
        """Run one task after the other, as long as the worker hands them out."""
        session = TaskSession()
        while delivery := self.deliveries.take():
            live = delivery.seconds_left() > 0
            outcome = self.runner.run(delivery) if live else lapsed(delivery)
            session.tidy()
            self.ended(outcome)
            if self.deliveries.strict:
                self.deliveries.wait_for_record(delivery)

    def ended(self, outcome: Outcome) -> None:
        """The thread, or the place on the loop, is free; what came of it is to be recorded."""
        self.deliveries.end(outcome.delivery)
        self.finisher.report(outcome)
