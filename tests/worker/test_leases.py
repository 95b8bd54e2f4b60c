"""A lease in a worker's hands: renewed, watched, given back."""

from __future__ import annotations

import time
from math import inf
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_leasequeue.compat import TaskResultStatus
from django_leasequeue.errors import TaskTimeout
from django_leasequeue.queue import Queue
from django_leasequeue.testing import MemoryQueue
from django_leasequeue.transitions import Kind
from django_leasequeue.worker import current_lease
from django_leasequeue.worker.context import CurrentLease
from django_leasequeue.worker.deliveries import Deliveries, Delivery
from django_leasequeue.worker.heartbeats import Heartbeats
from django_leasequeue.worker.outage import Outage
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for

from . import tasks
from .conftest import Site

pytestmark = on_all


def test_a_task_longer_than_its_lease_is_renewed_and_runs_once(site: Site) -> None:
    """G39: Four thirds of the visibility: without heartbeats a second attempt would begin."""
    result = site.enqueue(tasks.take_long, 4 / 3 * tasks.RENEWED)

    site.drain()

    result.refresh()
    assert result.return_value == 1
    assert set(site.kinds()) == {"enqueued", "leased", "heartbeat", "acked"}


def test_a_short_task_causes_no_heartbeat(site: Site) -> None:
    for number in range(5):
        site.enqueue(tasks.add, number, 1)

    site.drain()

    assert Kind.HEARTBEAT not in site.kinds()


def test_details_reach_the_next_attempt_though_the_transaction_was_rolled_back(
    site: Site,
) -> None:
    """G13"""
    if site.using == "sqlite":
        pytest.skip("one writer: while a task holds a transaction no heartbeat is stored")
    result = site.enqueue(tasks.leave_details)

    site.drain()

    result.refresh()
    details, token = result.return_value
    assert details == {"page": 7}
    assert token > 1


def test_a_task_that_asks_learns_that_its_lease_is_gone(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    result = site.enqueue(tasks.check_until_refused)

    with site.worker():
        wait_for(lambda: tasks.runs == ["running"])
        site.queue.cancel(result.id)
        tasks.gate.set()
        wait_for(lambda: "reason=cancelled" in caplog.text)

    assert "error=LeaseLostError" in caplog.text


def test_an_async_task_is_cancelled_at_its_timeout(site: Site) -> None:
    """G49"""
    result = site.enqueue(tasks.sleep_too_long)

    site.drain()

    result.refresh()
    assert tasks.runs == ["cancelled", "cancelled"]
    assert site.kinds() == ["enqueued", "leased", "retried", "leased", "dead"]
    assert result.errors[0].exception_class_path == "django_leasequeue.errors.TaskTimeout"


def test_a_sync_task_is_told_of_its_timeout_when_it_asks(site: Site) -> None:
    """G49"""
    result = site.enqueue(tasks.check_too_late)

    site.drain()

    result.refresh()
    assert site.kinds() == ["enqueued", "leased", "retried", "leased", "dead"]
    assert result.errors[0].exception_class_path == "django_leasequeue.errors.TaskTimeout"


@pytest.mark.parametrize("call", ["heartbeat", "check", "aheartbeat", "acheck"])
def test_each_call_of_a_task_tells_it_of_its_timeout(call: str) -> None:
    """G49"""
    queue = MemoryQueue("emails")
    queue.enqueue({})
    [lease] = queue.claim(worker="w")
    delivery = Delivery(queue=queue, lease=lease, sent_at=0.0)
    delivery.times_out_at = 0.0
    heartbeats = Heartbeats(Deliveries(1, lambda: None), Outage(), lambda: None)
    ask = getattr(CurrentLease(delivery, heartbeats), call)

    with pytest.raises(TaskTimeout):
        async_to_sync(ask)() if call.startswith("a") else ask()

    assert heartbeats.requests.empty()


def test_a_worker_whose_every_thread_is_stuck_ends_with_a_failure(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G49: Its supervisor starts another; a worker that can't work must not look healthy."""
    site.enqueue(tasks.never_check)

    with site.worker(grace=0.0) as worker:
        wait_for(lambda: f"stopped worker={worker.name} leaving work behind" in caplog.text)

    assert worker.failed
    assert "every thread, or place on the loop, is stuck in a task whose lease" in caplog.text


def test_nothing_starts_on_a_lease_that_has_run_out(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G39: Judged from when the claim was sent: its answer may have been under way for long."""
    site.enqueue(tasks.add, 1, 2)
    [lease] = site.queue.claim(worker="w")
    late = Delivery(queue=site.queue, lease=lease, sent_at=time.monotonic() - lease.seconds_left)
    late.beat_at = inf  # its heartbeat would find the lease alive, and save it
    late.claimed_at = time.monotonic()  # else it may be given back, for having waited too long

    with site.worker() as worker:
        worker.deliveries.add([late])
        wait_for(lambda: "lost queue=work" in caplog.text)

    assert tasks.runs == []


def test_current_lease_says_where_it_belongs() -> None:
    with pytest.raises(LookupError, match="no worker is running a task here"):
        current_lease()


def test_the_context_has_the_current_lease_and_counts_as_it_does(site: Site) -> None:
    """In the second round, too, and after a lease that was given back."""
    result = site.enqueue(tasks.compare)
    site.drain()
    site.queue.redrive([result.id])
    site.queue.release(site.queue.claim(worker="w")[0])
    site.drain()

    tokens = [token for *_, token in tasks.runs]
    assert [told for *told, _ in tasks.runs] == [[n, n, n, True] for n in (1, 2, 3, 1, 2, 3)]
    assert tokens == sorted(set(tokens))


def test_an_async_task_and_its_sync_steps_see_the_lease(site: Site) -> None:
    result = site.enqueue(tasks.compare_later)

    site.drain()

    result.refresh()
    assert result.return_value == [1, 1, 1]


def hold_up(monkeypatch: pytest.MonkeyPatch, move: str) -> None:
    """Let *move* wait for the gate."""
    original = getattr(Queue, move)

    def late(self: Queue, *args: Any, **kwargs: Any) -> Any:
        assert tasks.gate.wait(PATIENCE), "the event loop stood still"
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Queue, move, late)


def test_the_async_twins_let_the_event_loop_go_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G13, G44"""
    hold_up(monkeypatch, "heartbeat")
    result = site.enqueue(tasks.renew_while_the_loop_goes_on)

    site.drain()

    result.refresh()
    assert result.return_value == {"page": 7}


def test_a_call_that_an_async_task_gave_up_harms_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_up(monkeypatch, "check")
    result = site.enqueue(tasks.give_up_asking)

    site.drain()

    result.refresh()
    assert result.return_value == 2


def test_what_was_claimed_and_never_started_is_given_back_uncounted(site: Site) -> None:
    """G19"""
    running, waiting = site.enqueue(tasks.wait_at_the_gate), site.enqueue(tasks.add, 1, 2)

    with site.worker() as worker:
        wait_for(lambda: tasks.runs == ["at the gate"])
        [lease] = site.queue.claim(worker=worker.name)
        early = Delivery(queue=worker.queues[1], lease=lease, sent_at=time.monotonic())
        worker.deliveries.add([early])

    running.refresh()
    waiting.refresh()
    assert running.status == TaskResultStatus.SUCCESSFUL
    assert (waiting.status, waiting.attempts) == (TaskResultStatus.READY, 0)
    assert site.kinds().count("released") == 1
