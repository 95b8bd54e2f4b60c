"""What a running task can ask about its own lease."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django_leasequeue.compat import TaskContext
from django_leasequeue.errors import TaskTimeout
from django_leasequeue.lease import Lease

from .deliveries import Delivery

if TYPE_CHECKING:
    from .heartbeats import Heartbeats

    AnyContext = TaskContext[Any, Any]
else:
    AnyContext = TaskContext


class CurrentLease:
    """The lease of the running task.

    Its calls run on a connection of the worker's own: they are neither delayed nor undone by the
    task's transaction. In async code await their twins: the others hold up the event loop.
    """

    def __init__(self, delivery: Delivery, heartbeats: Heartbeats) -> None:
        self.delivery = delivery
        self.heartbeats = heartbeats
        #: What the attempt before left by its last heartbeat; None where it left nothing.
        self.details = delivery.lease.details

    @property
    def lease(self) -> Lease:
        """The lease as the last heartbeat returned it."""
        return self.delivery.lease

    @property
    def token(self) -> int:
        """The fencing token: larger than that of any earlier delivery of this task."""
        return self.delivery.lease.token

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.delivery.lease.attempt

    @property
    def deadline(self) -> datetime:
        """When the lease ends unless it is renewed again, on the database's clock."""
        return self.delivery.lease.deadline

    def heartbeat(self, details: Any = None) -> None:
        """Renew the lease now, and leave *details* for the attempt that may follow.

        The worker renews by itself: call this to leave details.

        Args:
            details: JSON, at most 64 KiB.

        Raises:
            LeaseLostError: the lease isn't live: stop, another worker may have the task.
            TaskTimeout: the task has run longer than it may.
            InvalidTaskError: *details* can't be stored.
            QueueUnavailableError: the database can't be reached.
        """
        self.stop_if_timed_out()
        self.heartbeats.ask(partial(self.heartbeats.beat, self.delivery, details))

    async def aheartbeat(self, details: Any = None) -> None:
        """See heartbeat()."""
        self.stop_if_timed_out()
        await self.heartbeats.aask(partial(self.heartbeats.beat, self.delivery, details))

    def check(self) -> None:
        """Ask whether the lease is live.

        Raises:
            LeaseLostError: it isn't: stop, another worker may have the task.
            TaskTimeout: the task has run longer than it may.
            QueueUnavailableError: the database can't be reached.
        """
        self.stop_if_timed_out()
        self.heartbeats.ask(partial(self.delivery.queue.check, self.lease))

    async def acheck(self) -> None:
        """See check()."""
        self.stop_if_timed_out()
        await self.heartbeats.aask(partial(self.delivery.queue.check, self.lease))

    def stop_if_timed_out(self) -> None:
        if self.delivery.timed_out():
            raise TaskTimeout("the task has run longer than its timeout")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseContext(AnyContext):  # type: ignore[misc]  # the stubs call it changeable; it is not
    """What a task with ``takes_context=True`` is called with: Django's context, and the lease."""

    lease: CurrentLease


current: ContextVar[CurrentLease] = ContextVar("leasequeue_current_lease")


def current_lease() -> CurrentLease:
    """The lease of the task that is running here.

    In the task's own thread, its async code and what ``asgiref`` carries on for it; another thread
    has to be handed it.

    Raises:
        LookupError: no worker is running a task here.
    """
    try:
        return current.get()
    except LookupError:
        raise LookupError("no worker is running a task here, so there is no lease") from None
