"""B18: attempts used up and the process gone: the task must be dead, not stuck."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_leasequeue import Queue
from django_leasequeue.records import Depth
from django_leasequeue.testing.clock import FakeClock

MakeQueue = Callable[..., Queue]


@pytest.mark.parametrize("attempts", [1, 3])
def test_it_is_dead_at_its_deadline_though_nothing_runs(
    make_queue: MakeQueue, clock: FakeClock, attempts: int
) -> None:
    """G9, G17"""
    queue = make_queue()
    queue.enqueue({}, id="a", dedupe_key="k", max_attempts=attempts, visibility=30)
    for _ in range(attempts):
        [lease] = queue.claim(worker="w-of-the-dead")
        clock.advance(30)

    assert queue.depth() == Depth(visible=0, scheduled=0, leased=0, dead=1)
    [letter] = queue.dead_letters()
    last = letter.failures[-1]
    assert (letter.at, len(letter.failures)) == (lease.deadline, attempts)
    assert (last.outcome, last.worker, last.token) == (
        "worker vanished",
        "w-of-the-dead",
        lease.token,
    )
    assert not queue.enqueue({}, id="b", dedupe_key="k").duplicate, "its dedupe key is free"
    assert queue.cancel("b")
    assert queue.redrive(["a"]).redriven == 1
    assert queue.claim(worker="w")[0].attempt == 1
