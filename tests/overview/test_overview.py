"""What is told of the queues of a database, at a bounded cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue, QueuePolicy
from django_leasequeue.overview import HOUR, Verdict, counting, known_queues, overview, rates
from django_leasequeue.overview.rates import Window
from django_leasequeue.testing.clock import FakeClock
from tests.databases import ALIASES, IDS

pytestmark = pytest.mark.django_db(databases=ALIASES)


@pytest.fixture(params=ALIASES, ids=IDS)
def using(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(using: str, clock: FakeClock) -> Queue:
    policy = QueuePolicy(visibility=30, max_attempts=1)
    return Queue("mail", using=using, clock=clock, policy=policy)


def test_tasks_are_counted_by_tenant_as_the_clock_has_them(queue: Queue, clock: FakeClock) -> None:
    for id in ("lapses for good", "fails"):
        queue.enqueue({}, id=id, tenant="x")
    _, failing = queue.claim(worker="w", limit=2)
    queue.fail(failing, "no")
    queue.enqueue({}, id="waits", tenant="y")
    queue.enqueue({}, id="later", tenant="y", run_after=timedelta(hours=1))
    queue.enqueue({}, id="came due", tenant="y", run_after=timedelta(seconds=29))
    clock.advance(30)
    queue.enqueue({}, id="first of its tenant", tenant="x")
    queue.claim(worker="w")

    held = counting.held(queue.using, "mail", clock.now())

    x, y = held.tenants
    assert (x.tenant, x.visible, x.scheduled, x.leased, x.dead) == ("x", 1, 0, 0, 2)
    assert (y.tenant, y.visible, y.scheduled, y.leased, y.dead) == ("y", 1, 1, 1, 0)
    assert (held.total.since, held.cut) == (clock.start + timedelta(seconds=29), frozenset())
    [alone] = counting.held(queue.using, "mail", clock.now(), ["y"]).tenants
    assert alone == y


def test_of_many_tasks_some_are_counted_and_that_is_said(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "COUNTED_MAX", 5)
    queue.enqueue_many([{"payload": 1}] * 7)

    held = counting.held(queue.using, "mail", clock.now())

    assert held.total.visible >= 6
    assert held.cut == frozenset({"visible"})
    assert held.told("visible").strip("~+") == str(held.total.visible) != held.told("visible")
    assert held.told("dead") == "0"


def test_behind_the_bound_the_oldest_is_known_all_the_same(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "COUNTED_MAX", 2)
    queue.enqueue({}, priority=-10, tenant="a")
    clock.advance(60)
    queue.enqueue({}, tenant="z")
    clock.advance(60)
    queue.enqueue_many([{"payload": 1, "tenant": "a"}] * 7)

    held = counting.held(queue.using, "mail", clock.now())

    assert held.total.since == clock.start
    [z] = counting.held(queue.using, "mail", clock.now(), ["z"]).tenants
    assert (z.visible, z.since) == (1, clock.start + timedelta(seconds=60))


def test_queues_are_known_by_what_they_hold(using: str, queue: Queue, clock: FakeClock) -> None:
    for name in ("scheduled", "dead", "Zoë"):
        other = Queue(name, using=using, clock=clock)
        other.enqueue({}, run_after=timedelta(hours=1) if name == "scheduled" else None)
        for lease in other.claim(worker="w") if name == "dead" else ():
            other.fail(lease, "no", retryable=False)
    Queue("left", using=using).enqueue({}, id="a")
    Queue("left", using=using).cancel("a")

    assert counting.queues(using) == ["Zoë", "dead", "scheduled"]
    assert {"Zoë", "dead", "scheduled"} <= known_queues(using)


def test_what_happened_is_counted_minute_by_minute(queue: Queue, clock: FakeClock) -> None:
    queue.enqueue({}, tenant="long ago")
    queue.complete(queue.claim(worker="w")[0])
    clock.advance(3600 + 30)
    for _ in range(3):
        queue.enqueue({})
    done, failed, _ = queue.claim(worker="w", limit=3)
    queue.complete(done)
    clock.advance(29)
    queue.fail(failed, "no")
    clock.advance(61)
    queue.claim(worker="w")  # somebody writes down that the third has lapsed, and died of it

    told = rates.rates(queue.using, clock.now(), HOUR)["mail"]

    assert told.exact
    last = {what: [int(n) for n in told.of(what)[-2:]] for what in rates.WHAT}
    assert last == {
        "arrivals": [3, 0],
        "completions": [1, 0],
        "failures": [1, 0],
        "lapses": [0, 1],
    }
    assert sum(told.of("arrivals")) == 3
    assert told.per_minute("arrivals", seconds=120) == 1.5
    assert rates.rates(queue.using, clock.now(), HOUR, ["another tenant"]) == {}


def test_the_last_attempt_of_an_adopted_task_lapsed_it_did_not_fail(
    queue: Queue, clock: FakeClock
) -> None:
    queue.enqueue({})
    queue.claim(worker="w")
    queue.adopt(worker="w")

    told = rates.rates(queue.using, clock.now() + timedelta(seconds=1), HOUR)["mail"]

    assert (told.total("failures"), told.total("lapses")) == (0, 1)


def test_of_a_long_log_a_spread_sample_is_read_and_that_is_said(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "ROWS_MAX", 100)
    window = Window(seconds=40, parts=4)
    for _ in range(4):
        for _ in range(25):  # three rows each, in the same rhythm
            queue.enqueue({})
            queue.complete(queue.claim(worker="w")[0])
        clock.advance(10)

    told = rates.rates(queue.using, clock.now(), window)["mail"]

    assert not told.exact
    for what in ("arrivals", "completions"):
        assert all(10 <= count <= 40 for count in told.of(what)), what


def test_the_cost_doesn_t_grow_with_the_log(using: str, queue: Queue) -> None:
    queue.enqueue_many([{"payload": 1}] * 3)
    with CaptureQueriesContext(connections[using]) as little:
        overview(using, only=["mail"])
    queue.enqueue_many([{"payload": 1}] * 300)
    with CaptureQueriesContext(connections[using]) as more:
        overview(using, only=["mail"])

    assert len(more) <= len(little) + 8  # that many halvings of a hundred times as many rows


def test_a_queue_without_workers_is_stuck(using: str) -> None:
    queue = Queue("mail", using=using)
    queue.enqueue({})

    [view] = overview(using, only=["mail"]).queues
    queue.pause(by="ada")
    [paused] = overview(using, only=["mail"]).queues

    assert (view.verdict, view.total.visible) == (Verdict.STUCK, 1)
    assert paused.verdict is Verdict.PAUSED
