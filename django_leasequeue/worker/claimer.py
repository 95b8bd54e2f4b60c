"""Claiming what can start soon, and sleeping where there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue
from django_leasequeue.transitions import Transition
from django_leasequeue.wakeups import Sleeper

from .deliveries import PATIENCE_SECONDS, Deliveries, Delivery
from .heartbeats import Heartbeats
from .outage import OUTAGE, Outage, pause
from .sessions import Session

OUTAGE_PAUSE_SECONDS_MAX: Final = 5.0
LOOK_MAX: Final = 50  # leases that are given back to look behind them


@dataclass(eq=False, kw_only=True)
class Claimer:
    """Claims for one worker until it is to stop, is done, or has drained its queues.

    Args:
        name: the worker's.
        get_ready: called before each claim, until the worker may begin.
        is_async: whether the task of that path is async.
        left: tasks until it stops.
        drain: stop when nothing is visible any more.
        poll_interval: seconds between two looks where no notification comes.
        stopping: set when nothing is to be claimed any more.
    """

    name: str
    queues: Sequence[Queue]
    deliveries: Deliveries
    heartbeats: Heartbeats
    sleeper: Sleeper
    outage: Outage
    get_ready: Callable[[], None]
    is_async: Callable[[str], bool]
    left: float
    drain: bool
    poll_interval: float
    stopping: threading.Event
    failed: bool = False
    refused_all: bool = False  # that the last claim leased

    def run(self) -> None:
        """Claim, hand over, sleep; at the end give back what never started."""
        session = Session()
        failures = 0
        while self.goes_on():
            session.restore()  # receivers of signals are the site's code
            try:
                self.get_ready()
                self.give_back(self.deliveries.take_stale())
                if self.deliveries.room() < 1:
                    continue
                if not self.claim_or_sleep(session):
                    break
                failures = 0
            except OUTAGE as error:
                self.outage.met(error)
                if self.drain:
                    self.failed = True
                    break
                self.stopping.wait(pause(failures, OUTAGE_PAUSE_SECONDS_MAX))
                failures += 1
        self.give_back(self.deliveries.take_back())
        self.sleeper.close()

    def goes_on(self) -> bool:
        """Return when a claim is worth while; False where there is to be none any more."""
        while not self.left and (back := self.deliveries.take_back()):
            self.give_back(back)  # it is to be done yet, here or elsewhere
        return self.left > 0 and self.deliveries.wait_for_room()

    def claim_or_sleep(self, session: Session) -> bool:
        """Hand over what is visible, else wait for it; False where the queues are drained."""
        seen = self.deliveries.changes
        if self.claim():
            if self.refused_all and self.deliveries.in_hand():
                # What is next has no place here, by its kind: others may have one.
                self.deliveries.wait_for_change(seen, PATIENCE_SECONDS)
            return True
        if self.drain:
            if self.deliveries.in_hand():
                self.deliveries.wait_for_change(seen)  # what runs may enqueue, or be retried
                return True
            return self.deliveries.changes != seen  # one did so behind the look
        muted = self.sleeper.muted  # or what it becomes before we stand announced
        with self.sleeper:
            # From here on a commit wakes us. One that came before told nobody: look again.
            while True:
                outlooks = [queue.outlook() for queue in self.queues]
                if any(visible for visible, _ in outlooks) and self.claim():
                    break
                if self.stopping.is_set() or self.unmute():
                    break
                session.tidy()
                due = min(seconds for _, seconds in outlooks)
                pause = min(due, self.poll_interval, self.deliveries.patience())
                # At once: whoever enqueued waits for it.
                woken = self.sleeper.sleep(pause) and self.claim()
                if woken or self.deliveries.in_hand() or self.sleeper.muted != muted:
                    break
            time.sleep(0)  # before we withdraw, the runner begins what was leased
        return True

    def unmute(self) -> bool:
        """Whether a muted queue was resumed: asked now that nobody tells us of its tasks.

        Who resumes it after this tells us of that.
        """
        if not (muted := self.sleeper.muted):
            return False
        self.sleeper.muted = muted.intersection(self.queues[0].store.pauses())
        return self.sleeper.muted != muted

    def claim(self) -> int:
        """Lease what can start at once, the first queue's tasks first; how many there were."""
        claimed = refused = 0
        for source in self.queues:
            leased, given_back = self.claim_from(source)
            claimed += leased
            refused += given_back
        self.refused_all = claimed == refused
        self.outage.over()
        return claimed

    def claim_from(self, source: Queue) -> tuple[int, int]:
        """How many were leased, and how many of them have no place here: given back."""
        leased, refused = 0, list[Delivery]()
        while not self.stopping.is_set():
            limit = int(min(self.deliveries.room(), self.left)) + len(refused)
            if limit <= len(refused):
                break
            new = self.lease(source, limit)
            more = self.deliveries.add(new)
            self.heartbeats.notice(new)
            leased += len(new)
            refused += more
            # Behind coroutines without a place there may be tasks for the threads.
            in_the_way = sum(each.coroutine for each in more)
            if in_the_way < limit or len(refused) > LOOK_MAX:
                break
        self.give_back(refused)
        return leased, len(refused)

    def lease(self, source: Queue, limit: int) -> list[Delivery]:
        sent_at = time.monotonic()
        leases = source.claim(worker=self.name, limit=limit)
        new = [self.delivery(source, lease, sent_at) for lease in leases]
        self.read_histories(source, new)
        self.left -= len(new)
        return new

    def delivery(self, source: Queue, lease: Lease, sent_at: float) -> Delivery:
        on_loop = self.deliveries.coroutines > 0 and self.is_async(lease.path)
        return Delivery(queue=source, lease=lease, sent_at=sent_at, coroutine=on_loop)

    def read_histories(self, source: Queue, new: Sequence[Delivery]) -> None:
        """Read what the tasks have been through, for all in one go; nothing yet, at first."""
        again = [each for each in new if each.lease.previous_token is not None]
        if not again:
            return
        histories: dict[UUID, list[Transition]] = {each.lease.life: [] for each in again}
        with suppress(*OUTAGE):  # each runner reads its own then
            for row in source.store.history(histories):
                histories[row.life].append(row)
            for each in again:
                each.history = histories[each.lease.life]

    def give_back(self, unstarted: Sequence[Delivery]) -> None:
        """Release leases that no task has started on; their attempts aren't counted."""
        for delivery in unstarted:
            delivery.being_recorded()
        self.left += len(unstarted)
        for source in self.queues:
            leases = [each.lease for each in unstarted if each.queue is source]
            try:
                if leases:
                    source.release_many(leases)
            except OUTAGE as error:
                self.outage.met(error)  # they lapse
