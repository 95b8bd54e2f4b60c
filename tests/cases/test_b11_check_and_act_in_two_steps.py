"""B11: a pass based on an old look must not overwrite a finish."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_leasequeue import LeaseLostError, LostReason, Queue
from django_leasequeue.testing.clock import FakeClock

MakeQueue = Callable[..., Queue]


def test_redriving_an_old_list_leaves_what_was_done_meanwhile_alone(make_queue: MakeQueue) -> None:
    """G22"""
    queue = make_queue()
    task = queue.enqueue({}, id="a")
    queue.fail(queue.claim(worker="w")[0], "refused", retryable=False)
    listed = [letter.id for letter in queue.dead_letters()]
    queue.redrive(listed)
    queue.complete(queue.claim(worker="w")[0])

    batch = queue.redrive(listed)

    assert (batch.redriven, dict(batch.skipped)) == (0, {"a": "not held"})
    assert str(queue.store.history([task.life])[-1].kind) == "acked"


def test_after_an_adoption_the_old_worker_is_refused(make_queue: MakeQueue) -> None:
    """G11, G20"""
    queue = make_queue()
    queue.enqueue({}, id="a")
    [lease] = queue.claim(worker="w")
    queue.adopt(worker="w")

    with pytest.raises(LeaseLostError) as lost:
        queue.complete(lease)

    assert lost.value.reason is LostReason.ADOPTED
    assert queue.depth().visible == 1


def test_after_a_cancel_every_call_is_refused_and_says_so(make_queue: MakeQueue) -> None:
    """G11, G23"""
    queue = make_queue()
    task = queue.enqueue({}, id="a")
    [lease] = queue.claim(worker="w")
    assert queue.cancel("a", by="ada")
    assert not queue.cancel("a", by="ada")

    for call in (
        lambda: queue.complete(lease),
        lambda: queue.fail(lease, "refused"),
        lambda: queue.heartbeat(lease),
        lambda: queue.release(lease),
        lambda: queue.check(lease),
    ):
        with pytest.raises(LeaseLostError) as lost:
            call()
        assert lost.value.reason is LostReason.CANCELLED

    history = queue.store.history([task.life])
    assert [str(transition.kind) for transition in history] == ["enqueued", "leased", "cancelled"]
    assert history[-1].facts["by"] == "ada"


def test_a_finish_after_the_deadline_is_refused_though_nobody_wrote_the_lapse_down(
    make_queue: MakeQueue, clock: FakeClock
) -> None:
    """G8, G11"""
    queue = make_queue()
    queue.enqueue({}, id="a", visibility=30)
    [lease] = queue.claim(worker="w")
    clock.advance(30)

    with pytest.raises(LeaseLostError) as lost:
        queue.complete(lease)

    assert lost.value.reason is LostReason.LAPSED
    assert queue.depth().visible == 1
