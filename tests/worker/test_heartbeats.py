"""Which leases are renewed, when, and what comes of it; without a database, and without waiting."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from django.db import connection

from django_leasequeue import QueuePolicy, QueueUnavailableError
from django_leasequeue.errors import LostReason
from django_leasequeue.queue import Queue
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.worker.deliveries import Deliveries, Delivery
from django_leasequeue.worker.heartbeats import Heartbeats
from django_leasequeue.worker.outage import Outage
from django_leasequeue.worker.runner import acknowledge
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread

VISIBILITY = 30.0

pytestmark = pytest.mark.usefixtures("standing")


@pytest.fixture
def queue(clock: FakeClock) -> Queue:
    policy = QueuePolicy(visibility=VISIBILITY, max_lease=2 * VISIBILITY)
    return MemoryQueue("emails", clock=clock, policy=policy)


@pytest.fixture
def heartbeats() -> Heartbeats:
    return Heartbeats(Deliveries(9, lambda: None), Outage(), lambda: None)


def held(heartbeats: Heartbeats, queue: Queue, *, used: float = 0.0) -> Delivery:
    """A delivery whose lease began *used* seconds ago, running."""
    queue.enqueue({})
    [lease] = queue.claim(worker="w")
    delivery = Delivery(queue=queue, lease=lease, sent_at=time.monotonic() - used)
    heartbeats.deliveries.add([delivery])
    assert heartbeats.deliveries.take() is delivery
    return delivery


def plan(heartbeats: Heartbeats) -> float:
    """When it means to look again; a call keeps it from waiting until then."""
    heartbeats.requests.put(plan_made)
    assert heartbeats.wait() is plan_made
    return heartbeats.planned_at


def plan_made() -> None:
    pass


def kinds(delivery: Delivery) -> list[str]:
    history = delivery.queue.store.history([delivery.lease.life])
    return [str(transition.kind) for transition in history]


def test_a_lease_is_due_when_a_third_of_it_is_used_up(heartbeats: Heartbeats, queue: Queue) -> None:
    """G39"""
    held(heartbeats, queue, used=VISIBILITY / 3 - 1)
    due = held(heartbeats, queue, used=VISIBILITY / 3)

    assert heartbeats.due() == [due]
    assert heartbeats.wait() is None, "at once"


def test_what_is_being_recorded_is_renewed_no_more(heartbeats: Heartbeats, queue: Queue) -> None:
    """A heartbeat beside the finish would be refused, and be told as a lost lease."""
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)
    delivery.being_recorded()

    heartbeats.beat(delivery)

    assert heartbeats.due() == []
    assert plan(heartbeats) == inf
    assert kinds(delivery) == ["enqueued", "leased"]


def test_an_acknowledgement_inside_the_task_s_transaction_meets_none(
    heartbeats: Heartbeats, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for that transaction's commit, and then be told as a lost lease."""
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)
    complete = queue.complete

    def complete_as_a_heartbeat_is_due(*args: Any, **options: Any) -> None:
        heartbeats.renew(delivery)
        complete(*args, **options)

    monkeypatch.setattr(queue, "complete", complete_as_a_heartbeat_is_due)
    acknowledge(delivery, 7)

    assert kinds(delivery) == ["enqueued", "leased", "acked"]


def test_it_plans_for_the_first_that_is_due_and_is_woken_for_none_but_an_earlier_one(
    heartbeats: Heartbeats, queue: Queue
) -> None:
    assert plan(heartbeats) == inf
    later, sooner = held(heartbeats, queue, used=1), held(heartbeats, queue, used=2)
    earlier = held(heartbeats, queue, used=3)
    heartbeats.deliveries.running.discard(earlier)

    assert plan(heartbeats) == sooner.beat_at
    heartbeats.notice([sooner, later])
    heartbeats.notice([])
    assert heartbeats.requests.empty()
    heartbeats.notice([later, earlier])
    assert heartbeats.requests.get_nowait() is None


def test_what_can_t_be_renewed_is_looked_at_once_more_when_it_ends(
    heartbeats: Heartbeats, queue: Queue
) -> None:
    """Its task may be stuck from then on."""
    capped = held(heartbeats, queue, used=10)
    capped.renew_no_more()

    assert plan(heartbeats) == capped.sent_at + VISIBILITY
    capped.sent_at -= VISIBILITY
    assert plan(heartbeats) == inf


def test_a_heartbeat_brings_a_new_deadline_until_the_lease_is_as_long_as_it_may_be(
    heartbeats: Heartbeats, queue: Queue, clock: FakeClock
) -> None:
    """G39"""
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)
    seen = []
    for seconds in (10, 25, 35):
        clock.set(seconds)
        heartbeats.renew(delivery)
        seen.append((delivery.lease.deadline - clock.start).total_seconds())

    assert seen == [40, 55, 60]
    assert delivery.beat_at == inf
    assert delivery.sent_at == time.monotonic()
    assert kinds(delivery)[2:] == ["heartbeat"] * 3


def test_after_a_heartbeat_the_next_is_due_a_third_of_the_visibility_later(
    heartbeats: Heartbeats, queue: Queue, clock: FakeClock
) -> None:
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)

    heartbeats.renew(delivery)

    assert delivery.beat_at - delivery.sent_at == pytest.approx(VISIBILITY / 3)
    assert heartbeats.due() == []


def test_a_lost_lease_is_noted_and_left_alone(
    heartbeats: Heartbeats, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)
    queue.cancel(delivery.lease.id)

    heartbeats.renew(delivery)

    assert (delivery.lost, delivery.beat_at) == (LostReason.CANCELLED, inf)
    assert heartbeats.due() == []
    assert "lease lost while its task runs" in caplog.text


def test_a_task_that_has_timed_out_is_renewed_no_more(heartbeats: Heartbeats, queue: Queue) -> None:
    delivery = held(heartbeats, queue, used=VISIBILITY / 3)
    delivery.times_out_at = time.monotonic()

    heartbeats.renew(delivery)

    assert delivery.beat_at == inf
    assert "heartbeat" not in kinds(delivery)


def test_while_the_database_is_away_it_tries_again_the_sooner_the_less_is_left(
    heartbeats: Heartbeats,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G42"""
    caplog.set_level(logging.INFO, logger="django_leasequeue")

    def away(*_: object, **__: object) -> None:
        raise QueueUnavailableError("away")

    pauses = []
    delivery = held(heartbeats, queue)
    with monkeypatch.context() as change:
        change.setattr(queue, "heartbeat", away)
        for used in (0, 15, 29.9):
            delivery.sent_at = time.monotonic() - used
            heartbeats.renew(delivery)
            pauses.append(delivery.beat_at - time.monotonic())
    assert pauses == pytest.approx([10, 5, 0.1])
    assert delivery.lost is None

    heartbeats.renew(delivery)

    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0].split(" after")[0] for line in said] == [
        "outage",
        "the database is back",
    ]


def test_a_row_that_its_own_task_has_locked_is_tried_again(
    heartbeats: Heartbeats, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G14"""
    delivery = held(heartbeats, queue, used=15)
    before = delivery.lease
    monkeypatch.setattr(queue, "heartbeat", lambda lease, **_: lease._replace(renewed=False))

    heartbeats.renew(delivery)

    assert delivery.lease is before
    assert delivery.beat_at - time.monotonic() == 5


@pytest.fixture
def running(heartbeats: Heartbeats) -> Iterator[Heartbeats]:
    ended = in_thread(heartbeats.run)
    yield heartbeats
    heartbeats.stop()
    ended.result(PATIENCE)


def test_calls_are_made_on_its_thread_and_answered_with_what_they_raise(
    running: Heartbeats,
) -> None:
    def refuse() -> None:
        raise ZeroDivisionError

    assert running.ask(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        running.ask(refuse)
    assert running.ask(lambda: 7) == 7


def test_a_call_that_nobody_waits_for_any_more_isn_t_made(heartbeats: Heartbeats) -> None:
    """As of an async task that was cancelled."""
    made: list[int] = []
    answer = heartbeats.answer_of(lambda: made.append(1))
    assert answer.cancel()

    request = heartbeats.wait()
    assert request
    request()

    assert made == []


@on_all
@pytest.mark.parametrize("busy", [True, False])
def test_what_a_call_leaves_in_the_session_is_gone_at_the_next(
    running: Heartbeats, queue: Queue, busy: bool
) -> None:
    """G41: Receivers of signals are the site's code, and run here, too."""
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names another database")
    if busy:
        held(running, queue)

    def execute(sql: str) -> object:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchone() if cursor.description else None

    before = running.ask(lambda: execute("SHOW search_path"))
    running.ask(lambda: execute("SET search_path = nowhere"))

    assert running.ask(lambda: execute("SHOW search_path")) == before
    running.ask(lambda: connection.close())
