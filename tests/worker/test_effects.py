"""Effects elsewhere: recorded before and after, so that the next delivery knows what it can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from django.contrib.auth.models import Group

from django_leasequeue import InvalidTaskError, Lease, LeaseLostError, LostReason, Queue, effects
from django_leasequeue.models import Effect, TaskTransition
from django_leasequeue.testing import FakeClock
from django_leasequeue.testing.running import CallsAtOnce, nothing
from django_leasequeue.worker.context import CurrentLease, current
from django_leasequeue.worker.deliveries import Deliveries, Delivery
from django_leasequeue.worker.outage import Outage
from tests.conftest import DATABASES
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for

from . import tasks
from .conftest import Site, terminate_sessions

pytestmark = on_all


@pytest.fixture(params=DATABASES)
def queue(request: pytest.FixtureRequest, transactional_db: None, clock: FakeClock) -> Queue:
    queue = Queue("emails", using=request.param, clock=clock)
    queue.enqueue({}, id="a", visibility=30)
    return queue


@contextmanager
def working(queue: Queue, lease: Lease | None = None) -> Iterator[Lease]:
    """As if a worker ran a task of *queue* here."""
    lease = lease or queue.claim(worker="w")[0]
    calls = CallsAtOnce(Deliveries(1, nothing), Outage(), nothing)
    token = current.set(CurrentLease(Delivery(queue=queue, lease=lease, sent_at=0.0), calls))
    yield lease
    current.reset(token)


def redelivered(queue: Queue, lease: Lease) -> None:
    queue.fail(lease, "half-way", retry_after=0)


class Shop:
    """Whoever is asked for the effect: counts how often."""

    def __init__(self) -> None:
        self.charged = 0

    def charge(self) -> Any:
        self.charged += 1
        return ("receipt", self.charged)

    def refuse(self) -> NoReturn:
        raise ConnectionRefusedError

    def break_down(self) -> NoReturn:
        self.charged += 1
        raise TimeoutError


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_an_effect_is_done_once_and_its_result_comes_back(queue: Queue, shop: Shop) -> None:
    """G55: As JSON gives it back, the first time, too."""
    with working(queue) as lease:
        first = effects.once("charge", shop.charge)
        again = effects.once("charge", shop.charge)
        other = effects.once("another", shop.charge)
    redelivered(queue, lease)

    with working(queue):
        later = effects.once("charge", shop.charge)

    assert first == again == later == ["receipt", 1]
    assert other == ["receipt", 2]


def test_an_effect_belongs_to_one_life(queue: Queue, shop: Shop) -> None:
    with working(queue) as lease:
        effects.once("charge", shop.charge)
        queue.complete(lease)
    queue.enqueue({}, id="a")

    with working(queue):
        assert effects.once("charge", shop.charge) == ["receipt", 2]


def test_an_effect_that_was_only_begun_is_uncertain(
    queue: Queue, shop: Shop, clock: FakeClock
) -> None:
    """G55: Never twice knowingly."""
    begun_at = clock.now()
    with working(queue) as first, pytest.raises(TimeoutError):
        effects.once("charge", shop.break_down)
    redelivered(queue, first)
    clock.advance(5)

    with working(queue) as second, pytest.raises(effects.EffectUncertain) as uncertain:
        effects.once("charge", shop.charge)

    error = uncertain.value
    assert (error.effect, error.life, error.token) == ("charge", second.life, first.token)
    assert error.started_at == begun_at
    assert "'charge'" in str(error)
    assert shop.charged == 1


def test_the_handler_may_say_that_an_uncertain_effect_is_skipped_or_repeated(
    queue: Queue, shop: Shop
) -> None:
    with working(queue):
        with pytest.raises(TimeoutError):
            effects.once("charge", shop.break_down)

        assert effects.once("charge", shop.charge, uncertain=effects.SKIP) is None
        assert shop.charged == 1
        repeated = effects.once("charge", shop.charge, uncertain=effects.REPEAT)
        assert effects.once("charge", shop.charge) == repeated == ["receipt", 2]


def test_an_effect_that_says_it_did_nothing_was_not_begun(queue: Queue, shop: Shop) -> None:
    refusals = (ConnectionRefusedError, KeyError)
    with working(queue):
        with pytest.raises(ConnectionRefusedError):
            effects.once("charge", shop.refuse, not_done=refusals)
        assert effects.once("charge", shop.charge) == ["receipt", 1]


def test_an_async_function_that_nobody_would_await_was_not_begun(queue: Queue, shop: Shop) -> None:
    async def charge() -> Any:
        return shop.charge()

    with working(queue):
        with pytest.raises(TypeError, match="aonce"):
            effects.once("charge", charge)
        assert effects.once("charge", shop.charge) == ["receipt", 1]


def test_a_repetition_that_did_nothing_leaves_it_as_uncertain_as_before(
    queue: Queue, shop: Shop
) -> None:
    with working(queue):
        with pytest.raises(TimeoutError):
            effects.once("charge", shop.break_down)
        with pytest.raises(ConnectionRefusedError):
            effects.once(
                "charge",
                shop.refuse,
                uncertain=effects.REPEAT,
                not_done=ConnectionRefusedError,
            )
        with pytest.raises(effects.EffectUncertain):
            effects.once("charge", shop.charge)


def test_nothing_is_begun_on_a_lease_that_is_lost(
    queue: Queue, shop: Shop, clock: FakeClock
) -> None:
    """G55: Not even what its successor has begun is repeated."""
    stale = queue.claim(worker="w1")[0]
    clock.advance(30)

    for reason in (LostReason.LAPSED, LostReason.SUPERSEDED):
        with working(queue, stale), pytest.raises(LeaseLostError) as lost:
            effects.once("charge", shop.charge, uncertain=effects.REPEAT)
        assert lost.value.reason is reason
        if reason is LostReason.LAPSED:
            assert not Effect.objects.using(queue.using).exists()
            with working(queue), pytest.raises(TimeoutError):
                effects.once("charge", shop.break_down)
    assert shop.charged == 1


def test_an_effect_is_recorded_as_done_though_the_lease_was_lost_meanwhile(
    queue: Queue, shop: Shop, clock: FakeClock
) -> None:
    def take_too_long() -> Any:
        clock.advance(30)
        return shop.charge()

    with working(queue):
        effects.once("charge", take_too_long)

    with working(queue):
        assert effects.once("charge", shop.charge) == ["receipt", 1]


def test_a_result_that_cant_be_stored_is_replaced_by_a_note(queue: Queue) -> None:
    with working(queue):
        first = effects.once("charge", lambda: {1, 2})
        assert effects.once("charge", lambda: {1, 2}) == first

    assert first["unstorable_result"] == "set"


def test_a_name_that_cant_be_stored_is_refused(queue: Queue, shop: Shop) -> None:
    with working(queue), pytest.raises(InvalidTaskError, match="effect"):
        effects.once("x" * 201, shop.charge)

    assert shop.charged == 0


def test_outside_of_a_task_there_is_nothing_to_record_it_under(shop: Shop) -> None:
    with pytest.raises(LookupError, match="no worker is running a task here"):
        effects.once("charge", shop.charge)

    assert shop.charged == 0


def test_a_worker_that_dies_in_the_middle_leaves_it_uncertain(site: Site) -> None:
    """G55"""
    result = site.enqueue(tasks.charge, "die")
    assert site.start("--drain").wait(PATIENCE) == -9
    worker = TaskTransition.objects.using(site.using).get(kind="leased").worker
    site.queue.adopt(worker=str(worker))

    site.drain()

    result.refresh()
    errors = [error.exception_class_path for error in result.errors]
    assert errors[1:] == ["django_leasequeue.errors.EffectUncertain"] * 2
    assert tasks.runs == []


def test_the_tasks_own_rollback_does_not_undo_the_record(server: Site) -> None:
    """G55"""
    result = server.enqueue(tasks.charge_atomically)

    server.drain()

    result.refresh()
    assert (result.attempts, result.return_value) == (2, 1)
    assert tasks.runs == ["charged"]
    assert Group.objects.using(server.using).count() == 1


def test_inside_a_transaction_on_sqlite_it_is_refused(site: Site) -> None:
    if site.using != "sqlite":
        pytest.skip("elsewhere a second session can write")
    result = site.enqueue(tasks.charge_atomically)

    site.drain()

    result.refresh()
    assert "SQLite has one writer" in result.errors[0].traceback
    assert tasks.runs == []


def test_a_connection_that_is_cut_meanwhile_costs_no_record(postgres: Site) -> None:
    result = postgres.enqueue(tasks.charge, "wait")

    with postgres.worker(max_tasks=1):
        wait_for(lambda: tasks.runs == ["at the gate"])
        terminate_sessions()
        tasks.gate.set()
        wait_for(lambda: "acked" in postgres.kinds())

    result.refresh()
    assert result.return_value == "receipt"
    assert Effect.objects.using(postgres.using).get().done_at


def test_the_async_twin_does_the_same(site: Site) -> None:
    result = site.enqueue(tasks.charge_later)

    site.drain()

    result.refresh()
    assert (result.attempts, result.return_value) == (2, "receipt")
    assert tasks.runs == ["charged"]


def test_a_task_that_is_cancelled_before_the_act_has_begun_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Queue.check

    def late(self: Queue, lease: Lease) -> None:
        assert tasks.gate.wait(PATIENCE)
        original(self, lease)

    monkeypatch.setattr(Queue, "check", late)
    result = site.enqueue(tasks.give_up_charging)

    site.drain()

    result.refresh()
    assert result.return_value == "cancelled"
    assert tasks.runs == []
    assert not Effect.objects.using(site.using).exists()
