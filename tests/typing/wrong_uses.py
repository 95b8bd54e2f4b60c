"""What a user's type checker has to refuse.

Each wrong line says which error it is ignored for. mypy, strict, reports an ignore that isn't
needed: the day a wrong use is accepted, its line is an error.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.tasks import TaskContext

from django_leasequeue import Lease, Queue, QueuePolicy, effects
from django_leasequeue.fencing import fenced
from django_leasequeue.tasks import task
from django_leasequeue.testing import FakeClock, run_tasks
from django_leasequeue.worker import current_lease


@task(max_attempts=3)
def send(address: str, copies: int = 1) -> bool:
    return bool(address) and copies > 0


@task(takes_context=True)
def with_context(context: TaskContext[Any, Any], number: int) -> int:
    return number


def arguments_of_another_type() -> None:
    send.enqueue(7)  # type: ignore[arg-type]
    send.enqueue("ada", copies="two")  # type: ignore[arg-type]
    send.using(tenant="acme").enqueue(7)  # type: ignore[arg-type]
    with_context.enqueue("seven")  # type: ignore[arg-type]


def arguments_that_the_function_does_not_take() -> None:
    send.enqueue()  # type: ignore[call-arg]
    send.enqueue("ada", to="bob")  # type: ignore[call-arg]
    with_context.enqueue(7, 8)  # type: ignore[call-arg]


def values_taken_for_another_type() -> None:
    number: int = send.enqueue("ada").status  # type: ignore[assignment]
    text: str = with_context.enqueue(7).return_value  # type: ignore[assignment]
    print(number, text)  # noqa: T201


async def async_calls_that_are_not_right_either(queue: Queue, lease: Lease) -> None:
    await send.aenqueue(7)  # type: ignore[arg-type]
    await queue.aheartbeat("a token")  # type: ignore[arg-type]
    await queue.apoll()  # type: ignore[call-arg]
    queue.acomplete(lease)  # type: ignore[unused-coroutine]


def options_that_do_not_exist() -> None:
    task(retries=3)  # type: ignore[call-overload]
    task(max_attempts="three")  # type: ignore[call-overload]
    task(atomic="default")  # type: ignore[call-overload]
    send.using(retries=3)  # type: ignore[call-arg]
    send.using(run_after=60)  # type: ignore[arg-type]
    QueuePolicy(attempts=3)  # type: ignore[call-arg]


def options_by_their_place(queue: Queue, lease: Lease) -> None:
    queue.enqueue({}, "welcome-7")  # type: ignore[call-arg]
    queue.poll("w1")  # type: ignore[call-arg]
    queue.complete(lease, "sent")  # type: ignore[call-arg]


def a_lease_that_may_not_be_there(queue: Queue) -> None:
    queue.complete(queue.poll(worker="w1"))  # type: ignore[arg-type]


def values_are_not_to_be_changed(lease: Lease) -> None:
    lease.token = 8  # type: ignore[misc]
    send.max_attempts = 5  # type: ignore[misc]
    current_lease().attempt = 1  # type: ignore[misc]


async def effects_called_wrongly() -> None:
    effects.once("charge", send.call)  # type: ignore[arg-type]
    effects.once("charge", lambda: 1, uncertain="perhaps")  # type: ignore[arg-type]
    await effects.aonce("charge", lambda: 1)  # type: ignore[arg-type, return-value]


def tokens_where_leases_are_wanted(lease: Lease) -> None:
    fenced(lease.token)  # type: ignore[arg-type]
    fenced(lease).update(7, name="a")  # type: ignore[arg-type]


def helpers_called_wrongly() -> None:
    FakeClock().advance(timedelta(seconds=30))  # type: ignore[arg-type]
    run_tasks("default")  # type: ignore[call-arg]
