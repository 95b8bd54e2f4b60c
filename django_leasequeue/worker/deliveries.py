"""The leases in a worker's hands: waiting for a thread, running, or waiting to be recorded."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from django_leasequeue.errors import LostReason
from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue
from django_leasequeue.transitions import Transition

RETRY_SECONDS_MIN: Final = 0.1
AHEAD_SECONDS: Final = 0.25  # of work that is claimed before a thread is free for it
SHARE_OF: Final = 50  # leases, over which the share of async tasks is judged
AHEAD_MAX: Final = 400
AHEAD_PARTS: Final = 4  # when one of them has started a claim is due: it takes as long as the rest
UNRECORDED_MAX: Final = 1000  # ended, not yet on record: would be done again after a crash
WAIT_SECONDS_MAX: Final = 3600.0  # a lock's wait has a limit in the platform's integers
PATIENCE_SECONDS: Final = 1.0  # after that, what waits behind a slow task is given back


@dataclass(eq=False, kw_only=True, slots=True)
class Delivery:
    """One lease that this worker holds. Instants are the process's monotonic clock.

    ``sent_at`` is when the call was sent that brought ``lease``: what is left of the lease is
    judged from there, since the answer may have been under way for long.
    """

    queue: Queue
    lease: Lease
    sent_at: float
    coroutine: bool = False  # its task runs on the event loop, not in a thread
    started_at: float | None = None
    times_out_at: float = inf
    beat_at: float = inf  # when a heartbeat is due; never for what isn't to be renewed
    history: Sequence[Transition] | None = None  # of its life; None: not read yet
    lost: LostReason | None = None
    ended: bool = False  # being recorded: no heartbeat may meet the finish
    calling: threading.Lock = field(default_factory=threading.Lock)  # a heartbeat is under way
    visibility: float = field(init=False)
    claimed_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.visibility = self.lease.seconds_left
        self.claimed_at = self.sent_at
        self.beat_at = self.sent_at + self.visibility / 3

    def may_wait(self) -> bool:
        """Whether it may stand behind others: a death of this process costs it an attempt then.

        At most the first of several, so that no task dies that never began.
        """
        return self.lease.attempt == 1 and not self.lease.last_attempt

    def seconds_left(self) -> float:
        """How much longer the lease lasts, at least."""
        return self.lease.seconds_left - (time.monotonic() - self.sent_at)

    def seconds_run(self) -> float:
        """How long the task has been running; 0 where it hasn't started."""
        return time.monotonic() - self.started_at if self.started_at else 0.0

    def timed_out(self) -> bool:
        return time.monotonic() >= self.times_out_at

    def renewed(self, lease: Lease, sent_at: float) -> None:
        """Take over what a heartbeat sent at *sent_at* brought."""
        self.lease, self.sent_at = lease, sent_at
        capped = lease.deadline >= lease.leased_at + lease.max_lease
        self.beat_at = inf if capped else sent_at + self.visibility / 3

    def not_renewed(self) -> None:
        """Try again soon: the closer the deadline, the sooner."""
        pause = min(self.visibility, self.seconds_left()) / 3
        self.beat_at = time.monotonic() + max(pause, RETRY_SECONDS_MIN)

    def renew_no_more(self) -> None:
        self.beat_at = inf

    def being_recorded(self) -> None:
        """No heartbeat from here on; one that is under way is waited for."""
        with self.calling:
            self.ended = True

    def stuck(self) -> bool:
        """Whether its task still runs though the lease was given up, by time-out or cap."""
        return self.beat_at == inf and not self.ended and self.seconds_left() <= 0


class Deliveries:
    """All leases in the worker's hands, for its threads to share.

    Args:
        threads: how many tasks may run at a time.
        coroutines: how many async tasks may do so beside them; 0: they are as the others.
        strict: a thread's next task starts when the outcome of the one before is on record.
        emptied: called, from any thread, whenever nothing is in hand any more.
    """

    def __init__(
        self,
        threads: int,
        emptied: Callable[[], None],
        *,
        coroutines: int = 0,
        strict: bool = False,
    ) -> None:
        self.threads = threads
        self.coroutines = coroutines
        self.strict = strict
        self.emptied = emptied
        self.lock = threading.RLock()
        self.work = threading.Condition(self.lock)
        self.change = threading.Condition(self.lock)
        self.launch = threading.Condition(self.lock)
        self.waiting: deque[Delivery] = deque()
        self.running: set[Delivery] = set()
        self.launching: deque[Delivery] = deque()  # coroutines about to run
        self.afloat: dict[Delivery, None] = {}  # coroutines that run, the newest last
        self.async_share = 1.0  # of what came in lately
        self.finishing: set[Delivery] = set()
        self.changes = 0
        self.closed = False
        self.one_by_one = 0  # tasks that are to end before anything is claimed ahead again
        self.pace = inf  # seconds that a task takes, judged by the last ones; none has ended yet
        self.pace_afloat = inf  # and a coroutine
        self.low = 0  # with no more than that waiting, a claim may be worth while

    def room(self) -> int:
        """How many more leases can start at once, or soon."""
        with self.lock:
            free = self.threads + self.ahead() - len(self.running) - len(self.waiting)
            return min(free + self.room_afloat(), UNRECORDED_MAX - len(self.finishing))

    def room_afloat(self) -> int:
        """How many of the next leases are likely to be coroutines that can start at once."""
        free = self.free_afloat() + self.ahead_afloat()
        return min(AHEAD_MAX, max(1, int(free * self.async_share))) if free > 0 else 0

    def free_afloat(self) -> int:
        return self.coroutines - len(self.afloat) - len(self.launching)

    def ahead(self) -> int:
        """How many leases may wait for a thread: where tasks are short, as many as end soon.

        A claim of one costs as much as a claim of many; a task that waits here can't be taken by
        an idle worker.
        """
        if self.one_by_one:
            return 0
        soonest = min((each.seconds_run() for each in self.running), default=0.0)
        return ending_soon(self.threads, max(self.pace, soonest))

    def ahead_afloat(self) -> int:
        """As ``ahead``, for the event loop."""
        newest = next(reversed(self.afloat), None)
        soonest = newest.seconds_run() if newest else 0.0
        return ending_soon(self.coroutines, max(self.pace_afloat, soonest))

    def wait_for_room(self) -> bool:
        """Return when a claim is worth while; False where nothing is to start any more.

        That is when a thread is idle, a part of what waits has started, or what waits has done so
        for too long.
        """
        with self.lock:
            self.change.wait_for(self.worth_a_claim, min(self.patience(), WAIT_SECONDS_MAX))
            return not self.closed

    def worth_a_claim(self) -> bool:
        idle = len(self.running) + len(self.waiting) < self.threads
        room = self.room()
        likely = idle or self.free_afloat() > 0
        ahead = self.ahead() + self.ahead_afloat()
        return self.closed or (likely and room > 0) or 0 < ahead <= AHEAD_PARTS * room

    def patience(self) -> float:
        """Seconds until what waits may have done so for too long."""
        return PATIENCE_SECONDS if self.waiting or self.launching else inf

    def take_stale(self) -> list[Delivery]:
        """What has waited too long: its threads are busy with slow tasks, others may be idle."""
        now = time.monotonic()
        stale = []
        with self.lock:
            for line in (self.waiting, self.launching):
                late = [each for each in line if now - each.claimed_at > PATIENCE_SECONDS]
                for each in late:
                    line.remove(each)
                stale += late
        return stale

    def wait_for_change(self, seen: int, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Return when something has ended, or was recorded, since ``changes`` was *seen*."""
        with self.lock:
            self.change.wait_for(
                lambda: self.closed or self.changes != seen, min(self.patience(), seconds)
            )

    def add(self, claimed: Iterable[Delivery]) -> list[Delivery]:
        """Take in what was claimed; what would have to wait and may not comes back."""
        with self.lock:
            refused = []
            for delivery in claimed:
                if self.coroutines:
                    self.async_share += (delivery.coroutine - self.async_share) / SHARE_OF
                line, idle, full = self.place_of(delivery)
                if idle or (delivery.may_wait() and not full):
                    line.append(delivery)
                else:
                    refused.append(delivery)
            self.one_by_one += sum(not each.coroutine for each in refused)
            self.low = len(self.waiting) * (AHEAD_PARTS - 1) // AHEAD_PARTS
            self.work.notify_all()
            self.launch.notify()
            return refused

    def place_of(self, delivery: Delivery) -> tuple[deque[Delivery], bool, bool]:
        """Where it waits for its turn, whether that has come already, or is too far.

        What was claimed for the threads is not to wait for the loop in large numbers.
        """
        if delivery.coroutine:
            free = self.free_afloat()
            return self.launching, free > 0, free <= -max(self.threads, self.ahead_afloat())
        return self.waiting, len(self.running) + len(self.waiting) < self.threads, False

    def take(self) -> Delivery | None:
        """The next delivery to start, waited for; None where nothing is to start any more."""
        with self.lock:
            self.work.wait_for(lambda: self.closed or bool(self.waiting))
            if self.closed:
                return None
            delivery = self.waiting.popleft()
            delivery.started_at = time.monotonic()
            self.running.add(delivery)
            if len(self.waiting) == self.low:
                self.change.notify_all()
            return delivery

    def take_coroutine(self) -> Delivery | None:
        """As ``take``, for the event loop."""
        with self.lock:
            self.launch.wait_for(self.worth_a_launch)
            if self.closed:
                return None
            delivery = self.launching.popleft()
            delivery.started_at = time.monotonic()
            self.afloat[delivery] = None
            return delivery

    def worth_a_launch(self) -> bool:
        return self.closed or (bool(self.launching) and len(self.afloat) < self.coroutines)

    def end(self, delivery: Delivery) -> None:
        """Its task has returned: the thread is free, the outcome is yet to be recorded."""
        with self.lock:
            seconds = delivery.seconds_run()
            if delivery.coroutine:
                self.pace_afloat = smoothed(self.pace_afloat, seconds)
                self.afloat.pop(delivery, None)
                self.finishing.add(delivery)
                self.launch.notify()
                if not self.launching:  # else the loop goes on with what waits
                    self.changed()
                return
            self.one_by_one = max(0, self.one_by_one - 1)
            self.pace = smoothed(self.pace, seconds)
            self.running.discard(delivery)
            self.finishing.add(delivery)
            if not self.waiting:  # else its thread goes on with what waits
                self.changed()

    def wait_for_record(self, delivery: Delivery) -> None:
        """Return when its outcome is on record, or can't be any more."""
        with self.lock:
            self.change.wait_for(lambda: delivery not in self.finishing)

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """Recorded, given back or lost: no longer in our hands."""
        with self.lock:
            self.finishing.difference_update(deliveries)
            self.changed()

    def changed(self) -> None:
        self.changes += 1
        self.change.notify_all()
        lines = (self.waiting, self.running, self.launching, self.afloat, self.finishing)
        if not any(lines):
            self.emptied()

    def close(self) -> None:
        """From here on nothing starts."""
        with self.lock:
            self.closed = True
            self.work.notify_all()
            self.launch.notify_all()
            self.change.notify_all()

    def take_back(self) -> list[Delivery]:
        """Wait until all that was claimed has started; what has waited too long, or never will
        start, comes back."""
        with self.lock:
            while not self.closed and (self.waiting or self.launching):
                if stale := self.take_stale():
                    return stale
                self.change.wait(PATIENCE_SECONDS)
            unstarted = [*self.waiting, *self.launching]
            self.waiting.clear()
            self.launching.clear()
            return unstarted

    def company_comes(self) -> bool:
        """Whether more outcomes are to be expected within milliseconds."""
        return not self.strict and bool(self.waiting or self.launching)

    def in_hand(self) -> list[Delivery]:
        with self.lock:
            return [*self.waiting, *self.running, *self.launching, *self.afloat, *self.finishing]

    def at_work(self) -> list[Delivery]:
        with self.lock:
            return [*self.running, *self.launching, *self.afloat]

    def all_stuck(self) -> bool:
        """Whether no thread, or no place on the loop, is left for another task, now or later."""
        with self.lock:
            threads = sum(delivery.stuck() for delivery in self.running)
            places = sum(delivery.stuck() for delivery in self.afloat)
            return threads == self.threads or places == self.coroutines > 0

    def any_stuck_afloat(self) -> bool:
        with self.lock:
            return any(delivery.stuck() for delivery in self.afloat)


def ending_soon(places: int, seconds: float) -> int:
    """How many tasks end soon on so many *places*, where each takes so many *seconds*."""
    return min(AHEAD_MAX, int(AHEAD_SECONDS * places / seconds)) if seconds else AHEAD_MAX


def smoothed(pace: float, seconds: float) -> float:
    """The *pace* after one more task that took so many *seconds*."""
    return seconds if pace == inf else 0.8 * pace + 0.2 * seconds
