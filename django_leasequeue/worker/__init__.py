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
to renew and to record, the one that listens, and now and then the upkeep's: see there. A name of
its own takes one more, the event loop three.

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
import threading
import time
from collections.abc import Sequence
from math import inf
from typing import Final

from django.db import connections, transaction

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.errors import TaskTimeout
from django_leasequeue.polling import sleeper_for

from .claimer import Claimer
from .context import CurrentLease, LeaseContext, current_lease
from .coroutines import Coroutines
from .crew import Crew
from .deliveries import Deliveries
from .finisher import Finisher
from .heartbeats import Heartbeats
from .names import HeldName, new_name
from .outage import Outage
from .presence import Presence
from .readiness import refuse_unready
from .runner import Outcome, Runner, beside_a_loop
from .sessions import TaskSession
from .shutdown import Notes
from .upkeep import Upkeep

__all__ = ["CurrentLease", "LeaseContext", "TaskTimeout", "Worker", "current_lease"]

GRACE_SECONDS: Final = 25.0  # Kubernetes kills after 30
CLAIM_PATIENCE_SECONDS: Final = 3.0  # for a claim under way when the worker is to stop

logger = logging.getLogger("django_leasequeue")


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
        self.using = options.using
        self.name = name or new_name()
        self.queues = [backend.queue(queue) for queue in queues]
        self.threads = threads
        self.grace = grace
        self.ready = False
        self.giving_way = False
        self.stopping = threading.Event()
        self.notes = Notes()
        self.crew = Crew(self.using, self.notes)
        self.sleeper = sleeper_for(self.using, queues, None, options)
        outage = Outage()
        self.held_name = HeldName(name, self.queues[0], outage) if name else None
        self.deliveries = Deliveries(
            threads, self.notes.look, coroutines=async_tasks, strict=strict
        )
        self.heartbeats = Heartbeats(self.deliveries, outage, self.refuse_to_be_stuck)
        self.finisher = Finisher(backend, self.deliveries, outage)
        self.runner = Runner(backend, self.heartbeats, self.stop)
        self.coroutines = (
            Coroutines(self.runner, self.deliveries, self.ended) if async_tasks else None
        )
        self.claimer = Claimer(
            name=self.name,
            queues=self.queues,
            deliveries=self.deliveries,
            heartbeats=self.heartbeats,
            sleeper=self.sleeper,
            outage=outage,
            get_ready=self.get_ready,
            is_async=self.runner.is_async,
            left=inf if max_tasks is None else max_tasks,
            drain=drain,
            poll_interval=options.poll_interval if poll_interval is None else poll_interval,
            stopping=self.stopping,
        )
        presence = Presence(self.name, self.queues, threads, self.deliveries, self.sleeper)
        self.upkeep = Upkeep(self.name, self.queues, options.retention, presence)

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
        self.start_threads()
        self.notes.wait_for(self.is_done, stops=1)
        clean = self.wind_down()
        if self.crew.refusal:
            raise self.crew.refusal
        logger.info("stopped worker=%s%s", self.name, "" if clean else " leaving work behind")
        return 0 if clean and not self.failed else 1

    def start_threads(self) -> None:
        self.crew.start("claimer", self.claimer.run)
        for number in range(1, 1 + self.threads):
            self.crew.start(f"runner-{number}", self.run_tasks, within=beside_a_loop)
        if self.coroutines:
            self.crew.start("loop", self.coroutines.run)
            self.crew.start("launcher", self.coroutines.launch)
            self.crew.start("judge", self.coroutines.judge)
        self.crew.start("heartbeats", self.heartbeats.run)
        self.crew.start("finisher", self.finisher.run)

    @property
    def failed(self) -> bool:
        return self.crew.failed or self.claimer.failed

    def stop(self) -> None:
        """Ask the worker to stop; a second time: at once. From any thread or signal handler."""
        self.notes.stop()

    def give_way(self) -> None:
        """As ``stop``, for a successor: who asks for a stop then asks for the first time."""
        self.giving_way = True
        self.notes.look()

    def is_done(self) -> bool:
        return self.giving_way or not (self.claiming() or self.deliveries.in_hand())

    def claiming(self) -> bool:
        return "claimer" in self.crew.at_work

    def wind_down(self) -> bool:
        """Stop claiming, let run what runs, record it; whether all of that came to its end."""
        if (self.notes.stops or self.giving_way) and self.ready:
            running = len(self.deliveries.running) + len(self.deliveries.afloat)
            grace = self.grace
            logger.info("stopping worker=%s running=%d grace=%gs", self.name, running, grace)
        self.stopping.set()
        self.deliveries.close()
        self.sleeper.wake()
        end = time.monotonic() + self.grace
        if not self.notes.wait_for(lambda: not self.claiming(), seconds=CLAIM_PATIENCE_SECONDS):
            logger.warning("the claim under way doesn't end")
        self.notes.wait_for(lambda: not self.deliveries.in_hand(), seconds=end - time.monotonic())
        for left in (each.lease for each in self.deliveries.in_hand()):
            facts = (left.queue, left.id, left.attempt, left.token)
            logger.warning("unfinished queue=%s id=%s attempt=%d token=%d", *facts)
        for part in (self.coroutines, self.heartbeats, self.finisher, self.held_name):
            if part:
                part.stop()
        self.crew.join("loop", "judge", "heartbeats", "finisher", "name")
        if not self.deliveries.in_hand():
            self.crew.join("runner")  # idle: their loops end, too, before the interpreter does
        self.upkeep.stop()  # the others' last refusals count, too
        self.crew.join("upkeep")
        return not self.claiming() and not self.deliveries.in_hand()

    def is_held(self) -> bool:
        """Whether a thread that a task has left behind would keep the process alive, after run().

        One that an async task waited for goes on when the task is cancelled: Python can't end it,
        and waits for it at the end of the process.
        """
        return self.crew.goes_on("loop", "runner")

    def refuse_inside_transaction(self) -> None:
        if connections[self.using].in_atomic_block:
            raise transaction.TransactionManagementError(
                "a worker can't run inside a transaction: its threads would not see the tasks. In "
                "a TestCase use django_leasequeue.testing.run_tasks(), or a TransactionTestCase"
            )

    def refuse_to_be_stuck(self) -> None:
        """Stop where no task could start any more: a supervisor starts another worker."""
        blocked = self.coroutines and self.coroutines.blocked()
        if (blocked or self.deliveries.all_stuck()) and not self.crew.failed:
            place = "the event loop" if blocked else "every thread, or place on the loop,"
            logger.error("%s is stuck in a task whose lease is over", place)
            self.crew.fail()

    # The claimer's thread, before its first claim

    def get_ready(self) -> None:
        """Once, before the first claim: the tables are there, the name and what it held are ours.

        Raises:
            CannotStartError: they aren't.
        """
        if self.ready:
            return
        refuse_unready(self.using)
        if self.held_name and not self.take_name(self.held_name):
            return
        self.ready = True
        queues = ",".join(source.name for source in self.queues)
        database = connections[self.using].vendor
        logger.info(
            "started worker=%s queues=%s threads=%d database=%s",
            *(self.name, queues, self.threads, database),
        )
        self.crew.start("upkeep", self.upkeep.run)

    def take_name(self, held: HeldName) -> bool:
        """Hold the configured name, and take back what its last bearer had leased."""
        if not held.taken:
            if not held.take(self.stopping):
                return False
            self.crew.start("name", held.run)
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
            outcome = self.runner.run(delivery) if live else self.runner.lapsed(delivery)
            session.tidy()
            self.ended(outcome)
            if self.deliveries.strict:
                self.deliveries.wait_for_record(delivery)

    def ended(self, outcome: Outcome) -> None:
        """The thread, or the place on the loop, is free; what came of it is to be recorded."""
        self.deliveries.end(outcome.delivery)
        self.finisher.report(outcome)
