"""The async twins: same calls, on the caller's own connection, and never torn by a cancellation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from django_leasequeue import Lease, LeaseLostError, Queue, QueueUnavailableError, wakeups
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.testing.memory import MemoryQueue
from tests.conftest import on_databases
from tests.waiting import PATIENCE

MakeQueue = Callable[..., Queue]

NAMES = sorted({name for name in dir(Queue) if hasattr(Queue, f"a{name}")} - {"claim_one"})


def test_every_call_of_a_tasks_life_has_a_twin() -> None:
    calls = {
        *("enqueue", "enqueue_many", "claim", "check", "heartbeat", "complete", "complete_many"),
        *("fail", "release", "adopt", "cancel", "cancel_many"),
        *("redrive", "redrive_all", "depth", "stats"),
        *("dead_letters", "erase", "pause", "paused", "poll", "resume"),
    }
    assert set(NAMES) == calls


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_takes_the_same_arguments(name: str) -> None:
    sync, twin = getattr(Queue, name), getattr(Queue, f"a{name}")

    assert inspect.signature(twin).parameters == inspect.signature(sync).parameters


def test_the_whole_life_of_a_task_by_twins(make_queue: MakeQueue) -> None:
    """G44"""
    queue = make_queue()

    async def life() -> list[Any]:
        await queue.aenqueue({"n": 1}, id="a")
        await queue.aenqueue_many([{"payload": {}, "id": "b"}])
        first = await queue.apoll(worker="w")
        assert first
        await queue.acheck(first)
        first = await queue.aheartbeat(first, details={"page": 1})
        await queue.acomplete(first)
        [second] = await queue.aclaim(worker="w")
        await queue.afail(second, "refused", retryable=False)
        letters = [letter.id async for letter in queue.adead_letters()]
        batch = await queue.aredrive(letters)
        assert await queue.acancel("b")
        return [first.details, letters, batch.redriven, await queue.adepth()]

    assert async_to_sync(life)() == [{"page": 1}, ["b"], 1, queue.depth()]


@on_databases
def test_the_sync_call_is_refused_on_the_event_loop(make_queue: MakeQueue) -> None:
    queue = make_queue()

    async def enqueue() -> None:
        with pytest.raises(SynchronousOnlyOperation):
            queue.enqueue({})

    async_to_sync(enqueue)()
    assert queue.depth().visible == 0


@on_databases
def test_twenty_at_once_are_all_stored(make_queue: MakeQueue) -> None:
    queue = make_queue()

    async def enqueue() -> None:
        await asyncio.gather(*(queue.aenqueue({}, id=str(n)) for n in range(20)))

    async_to_sync(enqueue)()
    assert queue.depth().visible == 20


@on_databases
def test_a_twin_joins_the_callers_transaction(make_queue: MakeQueue) -> None:
    """G44"""
    queue = make_queue()

    async def enqueue() -> None:
        await queue.aenqueue({}, id="undone")

    with pytest.raises(ZeroDivisionError), transaction.atomic(using=queue.using):
        async_to_sync(enqueue)()
        raise ZeroDivisionError

    assert queue.depth().visible == 0


def test_a_cancelled_claim_gives_back_what_it_got(make_queue: MakeQueue) -> None:
    """G44"""
    queue = make_queue()
    queue.enqueue({}, id="a")
    claim = queue.claim
    cancel: list[Callable[[], Any]] = []

    def claim_while_the_caller_leaves(**options: Any) -> list[Lease]:
        leases = claim(**options)
        cancel[0]()
        return leases

    queue.claim = claim_while_the_caller_leaves  # type: ignore[method-assign]

    async def main() -> None:
        running = asyncio.ensure_future(queue.aclaim(worker="w"))
        loop = asyncio.get_running_loop()
        cancel.append(lambda: loop.call_soon_threadsafe(running.cancel))
        with pytest.raises(asyncio.CancelledError):
            await running

    async_to_sync(main)()
    queue.claim = claim  # type: ignore[method-assign]
    [lease] = queue.claim(worker="w")
    assert lease.attempt == 1, "the attempt isn't counted"


@pytest.fixture
def queue(transactional_db: None) -> Iterator[Queue]:
    if connection.vendor != "postgresql":
        pytest.skip("LISTEN needs PostgreSQL: DATABASE_URL names another database")
    queue = Queue("emails")
    queue.options = replace(queue.options, poll_interval=300)
    yield queue
    queue.close()


async def until_asleep() -> None:
    while not wakeups.asleep:
        await asyncio.sleep(0.005)


def test_apoll_sleeps_beside_a_running_loop_and_is_woken(queue: Queue) -> None:
    async def main() -> Lease | None:
        polling = asyncio.ensure_future(queue.apoll(worker="w", wait=300))
        await asyncio.wait_for(until_asleep(), PATIENCE)
        await queue.aenqueue({}, id="a")
        return await asyncio.wait_for(polling, PATIENCE)

    lease = async_to_sync(main)()
    assert lease
    assert lease.id == "a"


@pytest.mark.parametrize("poll", ["poll", "apoll"])
def test_a_poll_waits_for_a_database_that_is_away_at_its_beginning(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, poll: str
) -> None:
    outages = [QueueUnavailableError("away")]
    claim = queue.store.claim

    def claim_after_outages(*args: Any, **kwargs: Any) -> list[Lease]:
        if outages:
            raise outages.pop()
        return claim(*args, **kwargs)

    monkeypatch.setattr(queue.store, "claim", claim_after_outages)
    queue.enqueue({}, id="a")

    waiting = getattr(queue, poll)(worker="w", wait=30)
    lease = async_to_sync(partial(asyncio.wait_for, waiting, 10))() if poll[0] == "a" else waiting

    assert lease.id == "a"


def test_any_number_of_apolls_sleep_side_by_side() -> None:
    """G28: none waits for another's thread; the loop's own are few."""
    clock = FakeClock()
    queues = [MemoryQueue(name, clock=clock) for name in ("emails", "reports")]

    async def main() -> Lease | None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        polling = [asyncio.ensure_future(q.apoll(worker="w", wait=30)) for q in queues]
        try:
            async with asyncio.timeout(PATIENCE):
                while len(clock.waiting) < 2:
                    await asyncio.sleep(0.005)
                await queues[1].aenqueue({})
                return await polling[1]
        finally:
            for each in polling:
                each.cancel()
            await asyncio.wait(polling)

    assert async_to_sync(main)()


def test_a_cancelled_apoll_leaves_no_lease_behind(queue: Queue) -> None:
    """G44"""

    async def main() -> None:
        polling = asyncio.ensure_future(queue.apoll(worker="w", wait=300))
        await asyncio.wait_for(until_asleep(), PATIENCE)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(polling, PATIENCE)
        await sync_to_async(queue.enqueue)({}, id="a")

    async_to_sync(main)()
    assert not wakeups.asleep
    assert queue.depth().visible == 1


def test_a_lost_lease_is_refused_by_the_twin_too(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.enqueue({})
    [lease] = queue.claim(worker="w")
    queue.adopt(worker="w")

    with pytest.raises(LeaseLostError):
        async_to_sync(queue.acomplete)(lease)
