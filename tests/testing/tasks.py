"""Tasks for the tests of the helpers; they write to the database that their queue is in."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.db import DatabaseError, connections, transaction

from django_leasequeue import effects
from django_leasequeue.tasks import task
from django_leasequeue.worker import current_lease

told: list[str] = []


def place() -> str:
    return current_lease().delivery.queue.using


@task(queue_name="mail")
def found(name: str) -> int:
    Group.objects.using(place()).create(name=name)
    return Group.objects.using(place()).count()


@task(queue_name="mail")
async def found_later(name: str) -> str:
    group = await Group.objects.using(place()).acreate(name=name)
    return group.name


@task(queue_name="mail", max_attempts=2)
def found_and_fail(name: str) -> None:
    Group.objects.using(place()).create(name=f"{name} {current_lease().attempt}")
    current_lease().heartbeat({"founded": name})
    raise ValueError(f"after {current_lease().details}")


@task(queue_name="mail", max_attempts=2, takes_context=True)
async def renew_later(context: Any) -> Any:
    if context.attempt == 1:
        await context.lease.aheartbeat({"page": 7})
        raise ValueError("half-way")
    await current_lease().acheck()
    return context.lease.details


@task(queue_name="mail", max_attempts=2)
def tell_once(name: str) -> Any:
    effects.once("tell", lambda: told.append(name))
    raise ValueError("half-way")


@task(queue_name="mail", max_attempts=2)
async def tell_once_later(name: str) -> Any:
    async def tell() -> None:
        told.append(name)

    await effects.aonce("tell", tell)
    raise ValueError("half-way")


@task(queue_name="mail", max_attempts=1)
def found_twice(name: str) -> None:
    for _ in range(2):
        Group.objects.using(place()).create(name=name)


@task(queue_name="mail")
def swallow_a_database_error() -> None:
    with suppress(DatabaseError), connections[place()].cursor() as cursor:
        cursor.execute("SELECT nonsense FROM nowhere")


@task(queue_name="mail")
def pass_on(times: int) -> None:
    if times:
        pass_on.enqueue(times - 1)


@task(queue_name="mail")
def tell_on_commit(name: str) -> None:
    with transaction.atomic(using=place()):
        transaction.on_commit(partial(told.append, name), using=place())
        found.func(name)


@task(queue_name="mail")
def insist_on_a_transaction_of_its_own() -> None:
    with transaction.atomic(using=place(), durable=True):
        found.func("durable")


@task(queue_name="mail", max_attempts=1, atomic=True)
def found_atomically(name: str, using: str, how: str = "") -> str:
    Group.objects.using(using).create(name=name)
    transaction.on_commit(partial(told.append, name), using=using)
    if how == "fail":
        raise ValueError("after the write")
    if how == "lose the lease":
        delivery = current_lease().delivery
        delivery.queue.complete(delivery.lease)  # what no task should do
    return name


@task(queue_name="mail")
def be_interrupted() -> None:
    raise KeyboardInterrupt


@task(queue_name="mail", takes_context=True)
def describe(context: Any, word: str = "") -> list[Any]:
    return [context.attempt, word]
