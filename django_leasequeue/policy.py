"""The limits of a queue: how long a lease lasts, how often a task is tried, how long it waits.

A limit binds per task where the task has its own, else per queue, else the default here. It is
resolved at the enqueue and stored with the task: changing a setting doesn't change tasks that
are held already.

What is out of bounds raises InvalidTaskError, which names the field and the bounds.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from .errors import InvalidTaskError

PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100
MAX_LEASE_DEFAULT: Final = 3600.0
SECONDS_MAX: Final = 10 * 366 * 86_400  # ten years: further than any lease is meant to last
RATE_MIN: Final = 0.001  # a second's tasks: of a million, the last one comes in 32 years
RATE_MAX: Final = 1_000_000  # an instant is exact to the microsecond
RETRY_AFTER_MAX: Final = 365 * 86_400.0  # a year
INTEGER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    """How a queue treats its tasks. All times in seconds.

    Args:
        visibility: length of a lease.
        max_attempts: deliveries before the dead-letter queue.
        max_lease: longest total life of one lease, however often it is renewed;
            None: the larger of 3600 and ``visibility``.
        backoff_base, backoff_factor, backoff_cap: the delay after attempt ``a`` is
            ``min(cap, base * factor ** (a - 1))``.
        jitter: share of the delay, 0 to 1, by which it is shortened at random; 0: deterministic.
        on_fatal: what becomes of a task that failed for good.

    Raises:
        InvalidTaskError: a bound is broken; the message names it.
    """

    visibility: float = 30.0
    max_attempts: int = 5
    max_lease: float | None = None
    backoff_base: float = 5.0
    backoff_factor: float = 2.0
    backoff_cap: float = 3600.0
    jitter: float = 0.0
    on_fatal: Literal["dead_letter", "drop"] = "dead_letter"
    own: Limits | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", self.limits())  # what most tasks get
        for name in ("backoff_base", "backoff_cap"):
            seconds(name, getattr(self, name), minimum=0.0)
        seconds("backoff_factor", self.backoff_factor, minimum=1.0)
        if not 0 <= seconds("jitter", self.jitter, minimum=0.0) <= 1:
            raise InvalidTaskError("jitter must be between 0 and 1")
        if self.on_fatal not in ("dead_letter", "drop"):
            raise InvalidTaskError("on_fatal must be 'dead_letter' or 'drop'")

    def limits(
        self,
        *,
        max_attempts: int | None = None,
        visibility: float | None = None,
        max_lease: float | None = None,
    ) -> Limits:
        """The limits that bind one task, its own first."""
        if self.own and max_attempts is visibility is max_lease is None:
            return self.own
        attempts = self.max_attempts if max_attempts is None else max_attempts
        lease = positive("visibility", self.visibility if visibility is None else visibility)
        longest = self.max_lease if max_lease is None else max_lease
        if longest is None:
            longest = max(MAX_LEASE_DEFAULT, lease)
        if positive("max_lease", longest) < lease:
            raise InvalidTaskError("max_lease must not be smaller than visibility")
        return Limits(
            max_attempts=whole("max_attempts", attempts, 1, INTEGER_MAX),
            visibility=timedelta(seconds=lease),
            max_lease=timedelta(seconds=longest),
        )

    def delay(self, attempt: int) -> float:
        """Seconds that a task waits after its attempt number *attempt* failed."""
        try:
            # A float, because an integer to this power might never be finished.
            grown = self.backoff_base * float(self.backoff_factor) ** (attempt - 1)
        except OverflowError:
            grown = math.inf if self.backoff_base else 0.0
        capped = min(self.backoff_cap, grown)
        # Not a secret: jitter only spreads retries.
        return capped * (1 - self.jitter * random.random()) if self.jitter else capped  # noqa: S311


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What binds one task, resolved."""

    max_attempts: int
    visibility: timedelta
    max_lease: timedelta


def whole(field: str, value: Any, minimum: int, maximum: int) -> int:
    """*value*, an integer within its bounds."""
    if not isinstance(value, int) or not within(value, minimum, maximum):
        raise InvalidTaskError(f"{field} must be a whole number from {minimum} to {maximum}")
    return int(value)


def within(value: Any, minimum: float, maximum: float) -> bool:
    """Whether *value* is a number within its bounds; True is none, whatever Python says."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and minimum <= value <= maximum


def seconds(field: str, value: Any, *, minimum: float) -> float:
    """*value*, a number of seconds of at least *minimum*."""
    if not within(value, minimum, SECONDS_MAX):
        raise InvalidTaskError(f"{field} must be from {minimum:g} to {SECONDS_MAX} seconds")
    return float(value)


def positive(field: str, value: Any) -> float:
    """*value*, seconds of at least one microsecond."""
    return seconds(field, value, minimum=1e-6)


def gap_of(rate: Any) -> timedelta:
    """The time from one task to the next at *rate*, tasks per second."""
    if not within(rate, RATE_MIN, RATE_MAX):
        raise InvalidTaskError(f"rate must be from {RATE_MIN} to {RATE_MAX} tasks per second")
    return timedelta(seconds=1 / rate)


def clamped_retry_after(value: Any) -> float:
    """A handler's own wait, brought into 0 to one year; what is no number waits 0 seconds.

    A failure is always recorded, so a wrong wait may not raise.
    """
    if not isinstance(value, int | float) or value != value:  # NaN; isnan can't take every integer
        return 0.0
    return float(min(max(value, 0.0), RETRY_AFTER_MAX))
