"""The queue's promises as a suite that any implementation of the queue can be run against.

It needs pytest. Subclass it under a name that pytest collects, and say how a queue is made::

    class TestMyQueue(WorkQueueConformance):
        def make_queue(self, name="emails", *, policy=None, clock):
            return MyQueue(name, policy=policy, clock=clock)

An implementation takes its time from *clock* alone, and lets a waiting ``poll`` sleep by
``clock.wait_until``. The tests name in their docstrings the promises they hold, by their number
in ``docs/guarantees.md``; each chapter there is a module here.
"""

from __future__ import annotations

import pytest

CHAPTERS = (
    *("base", "threads", "enqueueing", "leases", "endings", "dead_letters", "order", "wakeups"),
    *("bad_input", "timelines", "pauses"),
)
# Before they are imported: it is what makes a failing assert tell the values.
pytest.register_assert_rewrite(*(f"{__name__}.{chapter}" for chapter in CHAPTERS))

from .bad_input import BadInput  # noqa: E402
from .base import POLICY, MakeQueue  # noqa: E402
from .dead_letters import DeadLetters  # noqa: E402
from .endings import Endings  # noqa: E402
from .enqueueing import Enqueueing  # noqa: E402
from .leases import Leases  # noqa: E402
from .order import Order  # noqa: E402
from .pauses import Pauses  # noqa: E402
from .timelines import Timelines  # noqa: E402
from .wakeups import WakeUps  # noqa: E402

__all__ = ["POLICY", "MakeQueue", "WorkQueueConformance"]


class WorkQueueConformance(
    Enqueueing, Leases, Endings, DeadLetters, Order, WakeUps, BadInput, Timelines, Pauses
):
    """Every promise about a queue; ``make_queue`` is what a subclass has to give."""
