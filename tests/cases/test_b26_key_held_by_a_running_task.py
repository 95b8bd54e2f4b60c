"""B26: what happens to news that arrives while its key's task is running."""

from __future__ import annotations

from collections.abc import Callable

from django_leasequeue import Queue
from django_leasequeue.transitions import State

MakeQueue = Callable[..., Queue]


def test_the_running_task_comes_back_and_the_answer_says_that_it_runs(
    make_queue: MakeQueue,
) -> None:
    """G4"""
    queue = make_queue()
    first = queue.enqueue({"n": 1}, dedupe_key="k")
    waiting = queue.enqueue({"n": 2}, dedupe_key="k")
    [lease] = queue.claim(worker="w")

    running = [queue.enqueue({"n": 2}, dedupe_key="k") for _ in range(3)]

    assert (waiting.state, waiting.life) == (State.READY, first.life)
    assert {(task.duplicate, task.life, task.state) for task in running} == {
        (True, first.life, State.LEASED)
    }
    kinds = [str(transition.kind) for transition in queue.store.history([first.life])]
    assert kinds == ["enqueued", "duplicate", "leased", "duplicate", "duplicate", "duplicate"]
    assert lease.payload == {"n": 1}

    queue.complete(lease)
    assert not queue.enqueue({"n": 2}, dedupe_key="k").duplicate
