"""Renewing the leases in danger, on a thread and a database connection of their own.

The tasks' threads may be busy, their connections in a transaction or broken; a lease must not
depend on the work it certifies. A task that is done within a third of its visibility never
causes a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeVar

from django_leasequeue.errors import LeaseLostError

from .deliveries import WAIT_SECONDS_MAX, Deliveries, Delivery
from .outage import OUTAGE, Outage
from .sessions import Session

LOOK_SECONDS: Final = 1.0

T = TypeVar("T")
Request = Callable[[], object]

logger = logging.getLogger("django_leasequeue")


class Heartbeats:
    """Renews the leases in *deliveries*, and makes the calls of running tasks.

    Args:
        look: called after each turn, and while a task goes on whose lease was given up.
    """

    def __init__(self, deliveries: Deliveries, outage: Outage, look: Callable[[], None]) -> None:
        self.deliveries = deliveries
        self.outage = outage
        self.look = look
        self.requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.planned_at = inf
        self.stopped = False

    def run(self) -> None:
        """Until ``stop``: wait for a call to make or a lease to renew."""
        session = Session()
        while not self.stopped:
            if request := self.wait():
                request()
            for delivery in self.due():
                self.renew(delivery)
            self.look()
            if self.deliveries.in_hand():
                session.restore()
            else:
                session.tidy()

    def stop(self) -> None:
        self.stopped = True
        self.requests.put(None)

    def notice(self, claimed: Iterable[Delivery]) -> None:
        """Leases have come in: wake up where one is due earlier than planned."""
        if min((delivery.beat_at for delivery in claimed), default=inf) < self.planned_at:
            self.requests.put(None)

    def ask(self, call: Callable[[], T]) -> T:
        """The answer of *call*, made on the heartbeats' connection."""
        return self.answer_of(call).result()

    async def aask(self, call: Callable[[], T]) -> T:
        """As ``ask``; the event loop goes on meanwhile."""
        return await asyncio.wrap_future(self.answer_of(call))

    def answer_of(self, call: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()

        def request() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # an async task waits no longer
            try:
                answer.set_result(call())
            except Exception as error:  # noqa: BLE001  it is the asking task's
                answer.set_exception(error)

        self.requests.put(request)
        return answer

    def wait(self) -> Request | None:
        """A call to make; None when a lease is due, or may be."""
        self.planned_at = inf  # until the plan is made, whatever comes in wakes us
        self.planned_at = planned_at = min(
            (self.next_look(delivery) for delivery in self.deliveries.in_hand()), default=inf
        )
        seconds = min(max(planned_at - time.monotonic(), 0.0), WAIT_SECONDS_MAX)
        with suppress(queue.Empty):
            return self.requests.get(timeout=seconds)
        return None

    def next_look(self, delivery: Delivery) -> float:
        """When it is worth looking at *delivery*: a heartbeat is due, or it may be stuck."""
        if delivery.ended:
            return inf
        if delivery.beat_at < inf:
            return delivery.beat_at
        left = delivery.seconds_left()
        again = LOOK_SECONDS if delivery.coroutine else inf  # what blocks the loop, blocks others
        return time.monotonic() + (left if left > 0 else again)

    def due(self) -> list[Delivery]:
        now = time.monotonic()
        in_hand = self.deliveries.in_hand()
        return [each for each in in_hand if each.beat_at <= now and not each.ended]

    def renew(self, delivery: Delivery) -> None:
        if delivery.timed_out():
            delivery.renew_no_more()
            return
        try:
            self.beat(delivery)
        except LeaseLostError as error:
            logger.warning("lease lost while its task runs: %s", error)
        except OUTAGE as error:
            self.outage.met(error)
            delivery.not_renewed()
        else:
            self.outage.over()

    def beat(self, delivery: Delivery, details: Any = None) -> None:
        """Send one heartbeat, unless the outcome is being recorded."""
        with delivery.calling:
            if delivery.ended:
                return
            sent_at = time.monotonic()
            try:
                lease = delivery.queue.heartbeat(delivery.lease, details=details)
            except LeaseLostError as error:
                delivery.lost = error.reason
                delivery.renew_no_more()
                raise
            if lease.renewed:
                delivery.renewed(lease, sent_at)
            else:
                delivery.not_renewed()  # its own transaction holds the row
