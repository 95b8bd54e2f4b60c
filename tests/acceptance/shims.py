"""Our backend in the clothes of Django's built-in ones, as far as Django's tests look at those."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db import connection
from django.utils.crypto import get_random_string
from django.utils.json import normalize_json

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import Task, TaskResult
from django_leasequeue.conf import Options
from django_leasequeue.models import TaskTransition
from django_leasequeue.policy import QueuePolicy
from django_leasequeue.worker import Worker
from django_leasequeue.worker.deliveries import Delivery
from django_leasequeue.worker.runner import Outcome

T = TypeVar("T")


class SuitesBackend(LeaseQueueBackend):
    """The suite passes no OPTIONS, its tasks lie in no app, and they are tried once."""

    lease_options = Options(task_modules=("tasks",), policy=QueuePolicy(max_attempts=1))


class DummyBackend(SuitesBackend):
    """Stores tasks; nobody runs them. The tests want to see what is stored."""

    @property
    def results(self) -> list[TaskResult[..., Any]]:
        return off_the_loop(self.stored)

    def stored(self) -> list[TaskResult[..., Any]]:
        rows = TaskTransition.objects.filter(kind="enqueued").order_by("id")
        return [self.get_result(str(life)) for life in rows.values_list("life", flat=True)]

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        return off_the_loop(partial(super().get_result, result_id))

    def clear(self) -> None:
        truncate = "TRUNCATE" if connection.vendor == "postgresql" else "DELETE FROM"
        with connection.cursor() as cursor:
            for table in ("leasequeue_task", "leasequeue_transition"):
                cursor.execute(f"{truncate} {table}")


class ImmediateBackend(SuitesBackend):
    """Runs a task as soon as it is stored, as a worker's thread does."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.worker_id = get_random_string(32)

    def enqueue(
        self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[Any, Any]:
        stored = super().enqueue(task, args, kwargs)
        worker = Worker(self, [task.queue_name])
        outcome = worker.runner.run(self.delivery_of(stored.id, worker))
        if isinstance(outcome.error, KeyboardInterrupt):
            raise outcome.error
        worker.finisher.record([strict(outcome)])
        return self.get_result(stored.id)

    def delivery_of(self, id: str, worker: Worker) -> Delivery:
        [queue] = worker.queues
        # Past queue.claim(), which refuses inside the transaction that one of the tests opens.
        leases = queue.store.claim(queue.name, worker=self.worker_id, limit=100)
        [lease] = [lease for lease in leases if str(lease.life) == id]
        return Delivery(queue=queue, lease=lease, sent_at=time.monotonic())


def strict(outcome: Outcome) -> Outcome:
    """Failed where the value isn't JSON, as in ImmediateBackend.

    Our worker doesn't do the work again for the sake of its value: it stores a note in its place.
    """
    try:
        normalize_json(outcome.result)
    except TypeError as error:
        return replace(outcome, error=error)
    return outcome


def off_the_loop(query: Callable[[], T]) -> T:
    """What *query* answers. Async tests ask without waiting, which only a backend in memory can."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return query()

    def on_a_connection_of_its_own() -> T:
        try:
            return query()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(on_a_connection_of_its_own).result()
