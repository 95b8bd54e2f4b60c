"""A contestant at work for us: takes verbs from its standard input, answers in JSON.

Runs in the contestant's own environment: ``python -m benchmarks.client NAME``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from importlib import metadata
from typing import Any, Final

GAP_SECONDS: Final = 0.03  # between two tasks for an idle worker
FIRST_TRICKLED: Final = 1_000_000
CHUNK: Final = 10_000


class Client:
    """Does what the verbs say. A contestant's functions may be coroutines, on one loop."""

    def __init__(self, name: str) -> None:
        self.module: Any = importlib.import_module(f"benchmarks.contestants.{name}")
        self.loop = asyncio.new_event_loop()

    def call(self, name: str, *args: Any) -> Any:
        answer = getattr(self.module, name)(*args)
        return self.loop.run_until_complete(answer) if inspect.isawaitable(answer) else answer

    def prepare(self) -> dict[str, str]:
        self.call("prepare")
        return {package: metadata.version(package) for package in self.module.PACKAGES}

    def empty(self) -> None:
        self.call("empty")

    def workers(self, processes: int) -> list[list[str]]:
        return [[sys.executable, *command] for command in self.module.workers(processes)]

    def enqueue(self, count: int) -> float:
        """Enqueue one by one; the seconds that it took."""
        begun = time.perf_counter()
        if inspect.iscoroutinefunction(self.module.enqueue):
            self.loop.run_until_complete(self.enqueue_on_the_loop(count))
        else:
            for number in range(count):
                self.module.enqueue(number)
        return time.perf_counter() - begun

    async def enqueue_on_the_loop(self, count: int) -> None:
        for number in range(count):
            await self.module.enqueue(number)

    def enqueue_many(self, count: int) -> float | None:
        """Enqueue in bulk; the seconds that it took."""
        if not hasattr(self.module, "enqueue_many"):
            return None
        begun = time.perf_counter()
        for start in range(0, count, CHUNK):
            self.call("enqueue_many", range(start, min(start + CHUNK, count)))
        return time.perf_counter() - begun

    def fill(self, count: int) -> None:
        if self.enqueue_many(count) is None:
            self.enqueue(count)

    def fill_computing(self, count: int) -> None:
        self.call("enqueue_computing", range(count))

    def trickle(self, count: int) -> list[tuple[int, float]]:
        """Enqueue for an idle worker; the numbers, and when each call returned."""
        returned = []
        name = "enqueue_and_wake" if hasattr(self.module, "enqueue_and_wake") else "enqueue"
        for number in range(FIRST_TRICKLED, FIRST_TRICKLED + count):
            self.call(name, number)
            returned.append((number, time.monotonic()))
            time.sleep(GAP_SECONDS * (1 + number % 7 / 7))  # in step with nobody's polling
        return returned


def main() -> None:
    client = Client(sys.argv[1])
    for line in sys.stdin:
        verb, *numbers = line.split()
        answer = getattr(client, verb)(*map(int, numbers))
        print(f"answer {json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
