"""A task queue for Django that leases work instead of losing it."""

from __future__ import annotations

from .errors import InvalidTaskError, LeaseLostError, LostReason, QueueUnavailableError
from .lease import Lease
from .policy import QueuePolicy
from .queue import Queue
from .records import ALL, Disposition, NewTask

__all__ = [
    "ALL",
    "Disposition",
    "InvalidTaskError",
    "Lease",
    "LeaseLostError",
    "LostReason",
    "NewTask",
    "Queue",
    "QueuePolicy",
    "QueueUnavailableError",
]
