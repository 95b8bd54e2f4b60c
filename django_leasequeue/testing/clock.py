"""A clock that only moves when a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SETTLING_SECONDS: Final = 0.02  # real time in which nothing moved: all sleep


class FakeClock:
    """The time of a test, for ``Queue(clock=...)``; safe to use from several threads.

    Args:
        start: the first instant.
        auto: jump to the earliest awaited instant when everybody waits.
    """

    def __init__(self, start: datetime = START, *, auto: bool = False) -> None:
        self.start = self.instant = start
        self.auto = auto
        self.changed = threading.Condition()
        self.waiting: list[datetime] = []

    def now(self) -> datetime:
        """The present instant, in UTC."""
        return self.instant

    def advance(self, seconds: float) -> None:
        """Move *seconds* ahead, and wake whom that concerns."""
        with self.changed:
            self.move(self.instant + timedelta(seconds=seconds))

    def set(self, seconds: float) -> None:
        """Move to *seconds* after the start."""
        self.move(self.start + timedelta(seconds=seconds))

    def move(self, instant: datetime) -> None:
        with self.changed:
            self.instant = instant
            self.changed.notify_all()

    def poke(self) -> None:
        """Let those who wait look whether they are woken."""
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, instant: datetime, woken: Callable[[], bool]) -> None:
        """Return when the clock shows *instant*, or *woken* says so."""
        with self.changed:
            self.waiting.append(instant)
            try:
                while self.instant < instant and not woken():
                    if not self.changed.wait(SETTLING_SECONDS if self.auto else None):
                        self.jump()
            finally:
                self.waiting.remove(instant)

    def jump(self) -> None:
        """Show the earliest awaited instant; first those go on who waited for the present one."""
        earliest = min(self.waiting)
        if earliest > self.instant:
            self.move(earliest)
