"""Helpers for tests of code that uses the queue; ``docs/testing.md`` has an example of each.

``WorkQueueConformance`` is in ``django_leasequeue.testing.conformance``: it needs pytest. Backends
that run tasks at once, or only record them, are in ``django_leasequeue.testing.backends``.
"""

from __future__ import annotations

from .clock import FakeClock
from .memory import MemoryQueue
from .running import deliver, run_tasks, use_clock

__all__ = ["FakeClock", "MemoryQueue", "deliver", "run_tasks", "use_clock"]
