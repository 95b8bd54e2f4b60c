"""Where a queue's visible tasks begin, as the last claims found it.

While somebody holds an old snapshot (a backup, a report), every row that was leased since lies dead
at the head of the index, and each claim steps over all of them. So a claim from a backlog begins
where the one before it ended, and only now and then at the very beginning: what became visible
behind it (a lease given back, a commit that came late) is found then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from ...policy import PRIORITY_MIN
from .rows import Claimed

FULL_LOOK_SECONDS: Final = 2.0
LIMIT_MIN: Final = 100  # smaller claims cost less than what they could miss
FROM_THE_BEGINNING: Final[dict[str, Any]] = {
    "priority": PRIORITY_MIN - 1,
    "visible_from": None,
    "due_from": None,
}


class Head:
    """Of one queue that one tenant has for itself."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.bounds = FROM_THE_BEGINNING
        self.full_look_at = 0.0
        self.nothing_due_before: datetime | None = None

    def asked(self, limit: int) -> dict[str, Any]:
        """Where a claim of *limit* tasks is to begin, as its statement takes it."""
        if limit < LIMIT_MIN or self.monotonic() >= self.full_look_at:
            self.forget()
        return self.bounds

    def learn(self, claimed: Claimed, limit: int) -> None:
        """What the claim that ``asked`` found; less than it wanted means that there is no more."""
        if len(claimed.leases) < limit or limit < LIMIT_MIN:
            self.forget()
            return
        if self.bounds is FROM_THE_BEGINNING:
            self.full_look_at = self.monotonic() + FULL_LOOK_SECONDS
            self.nothing_due_before = claimed.leases[0].leased_at
        last = claimed.leases[-1]
        self.bounds = {
            "priority": last.priority,
            "visible_from": last.visible_since,
            "due_from": self.nothing_due_before,
        }

    def forget(self) -> None:
        """Begin at the beginning next time."""
        self.bounds = FROM_THE_BEGINNING
