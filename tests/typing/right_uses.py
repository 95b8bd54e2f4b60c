"""What a user's code may rely on: arguments and answers keep their types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from django.contrib.auth.models import Group
from django.tasks import TaskContext, TaskResult

from django_leasequeue import (
    ALL,
    Disposition,
    Lease,
    LeaseLostError,
    NewTask,
    Queue,
    QueuePolicy,
    effects,
)
from django_leasequeue.fencing import fenced
from django_leasequeue.records import DeadLetter, Depth, EnqueuedTask, RedriveBatch, Stats
from django_leasequeue.tasks import LeaseTask, task
from django_leasequeue.testing import FakeClock, MemoryQueue, deliver, run_tasks, use_clock
from django_leasequeue.worker import CurrentLease, LeaseContext, current_lease

# Tasks


@task
def bare(address: str, copies: int = 1) -> bool:
    return bool(address) and copies > 0


def pause(error: BaseException, result: TaskResult[..., Any]) -> float | None:
    return None if isinstance(error, ValueError) else 2.0 * result.attempts


@task(queue_name="mail", max_attempts=3, visibility=60, max_lease=600, timeout=5, backoff=pause)
def configured(address: str, /) -> str:
    return address


@task(takes_context=True)
def with_context(context: TaskContext[Any, Any], number: int, /) -> int:
    lease = current_lease()
    assert_type(lease, CurrentLease)
    assert_type(lease.token, int)
    assert_type(lease.deadline, datetime)
    lease.heartbeat({"page": number})
    return number


@task(takes_context=True)
async def with_the_lease(context: LeaseContext, number: int) -> None:
    assert_type(context.lease, CurrentLease)
    assert_type(context.attempt, int)
    assert_type(context.lease.lease, Lease)
    await context.lease.aheartbeat({"page": number})
    await context.lease.acheck()


@task
def with_effects(number: int) -> Any:
    return effects.once("charge", lambda: number, uncertain=effects.SKIP, not_done=ValueError)


@task
async def with_effects_later(number: int) -> Any:
    async def charge() -> int:
        return number

    return await effects.aonce("charge", charge, not_done=(ValueError, KeyError))


@task(atomic=True)
def in_one_commit(number: int) -> None: ...


@task
async def asynchronous(number: int) -> None: ...


def a_task_keeps_the_types_of_its_function() -> None:
    assert_type(configured, LeaseTask[[str], str])
    assert_type(configured.enqueue("ada"), TaskResult[[str], str])
    assert_type(configured.enqueue("ada").return_value, str)
    assert_type(bare.enqueue(address="ada", copies=2).return_value, bool)
    assert_type(bare.call("ada"), bool)


def the_context_is_no_argument_of_the_caller() -> None:
    assert_type(with_context, LeaseTask[[int], int])
    with_the_lease.enqueue(7)
    assert_type(with_context.enqueue(7).return_value, int)


def using_answers_a_task_of_the_same_types() -> None:
    later = configured.using(
        run_after=timedelta(hours=1), tenant="acme", dedupe_key="ada", priority=5, queue_name="mail"
    )
    assert_type(later, LeaseTask[[str], str])
    assert_type(later.enqueue("ada").return_value, str)
    configured.using(run_after=datetime(2030, 1, 1, tzinfo=UTC))


async def tasks_can_be_enqueued_by_async_code() -> None:
    assert_type(await configured.aenqueue("ada"), TaskResult[[str], str])
    await asynchronous.aenqueue(number=1)


# Queues


def enqueueing(queue: Queue) -> None:
    enqueued = queue.enqueue({"user": 7}, id="welcome", tenant="acme", run_after=timedelta(days=1))
    assert_type(enqueued, EnqueuedTask)
    assert_type(enqueued.life, UUID)
    assert_type(enqueued.duplicate, bool)
    many = queue.enqueue_many([NewTask(payload=1), {"payload": 2}])
    assert_type(many, list[EnqueuedTask])


def working(queue: Queue, error: Exception) -> None:
    lease = queue.poll(worker="w1", wait=30)
    assert_type(lease, Lease | None)
    if lease is None:
        return
    assert_type(lease.token, int)
    assert_type(lease.payload, Any)
    assert_type(queue.heartbeat(lease, details={"page": 3}), Lease)
    assert_type(queue.fail(lease, error, retry_after=60), Disposition)
    try:
        queue.complete(lease, result="sent")
    except LeaseLostError as lost:
        assert_type(lost.lease, Lease)
    assert_type(Lease.from_string(lease.to_string(), now=queue.now()), Lease)


def operating(queue: Queue) -> None:
    assert_type(queue.dead_letters(tenant=ALL), Iterator[DeadLetter])
    for letter in queue.dead_letters():
        assert_type(letter.error, str)
        assert_type([attempt.worker for attempt in letter.failures], list[str])
    assert_type(queue.redrive(["1"], tenant="acme", by="ada", reason="fixed"), RedriveBatch)
    assert_type(queue.depth(), Depth)
    assert_type(queue.stats().oldest_visible_age, float | None)


async def every_call_has_a_twin_of_the_same_types(queue: Queue, lease: Lease) -> None:
    assert_type(await queue.aenqueue({"user": 7}, tenant="acme"), EnqueuedTask)
    assert_type(await queue.aclaim(worker="w1", limit=5), list[Lease])
    assert_type(await queue.apoll(worker="w1", wait=30), Lease | None)
    assert_type(await queue.aheartbeat(lease, details=1), Lease)
    assert_type(await queue.afail(lease, ValueError()), Disposition)
    await queue.acomplete(lease, result=1)
    await queue.arelease(lease)
    assert_type(await queue.aredrive(["1"], by="ada"), RedriveBatch)
    assert_type(await queue.astats(), Stats)
    async for letter in queue.adead_letters():
        assert_type(letter, DeadLetter)


def rows_of_ones_own(lease: Lease) -> None:
    assert_type(fenced(lease).update(Group.objects.filter(pk=7), name="a"), int)
    fenced(current_lease(), field="token").update(Group.objects.all(), name="a")


# Tests


def testing() -> None:
    clock = FakeClock()
    queue = MemoryQueue("mail", clock=clock, policy=QueuePolicy(max_attempts=3))
    assert_type(queue.claim(worker="w1"), list[Lease])
    with use_clock(clock) as used:
        assert_type(used, FakeClock)
        used.advance(30)
        assert_type(run_tasks(), list[TaskResult[..., Any]])
    assert_type(deliver(queue), int)
