"""Backends for the TASKS of a test's settings: no table, no worker.

They take the tasks of ``django_leasequeue.tasks`` with all their arguments, and the OPTIONS of the
real backend, and refuse what it would refuse. What only a queue can do they don't: dedupe keys,
retries, leases and ``current_lease()`` need ``run_tasks``.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from django_leasequeue import compat, validation
from django_leasequeue.backend import LeaseTaskBackend
from django_leasequeue.compat import Task, TaskResult
from django_leasequeue.tasks import Refusals, json_value, lease_task, unvalidated, values


class StrictBackend(LeaseTaskBackend):
    """Refuses arguments that the queue could not store, by their path."""

    supports_defer = True

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """As LeaseQueueBackend's.

        Raises:
            RefusedTaskError: the task or an argument can't be stored.
        """
        self.validate_task(task)
        size = self.lease_options.payload_bytes_max
        with Refusals("Unsupported type or value: "):
            payload = {"args": json_value(args), "kwargs": json_value(kwargs)}
            validation.payload_text(payload, bytes_max=size)
        return super().enqueue(lease_task(task), args, kwargs)


class ImmediateBackend(StrictBackend, compat.ImmediateBackend):
    """Runs each task at its enqueue, also one that was to wait; an atomic one in a transaction."""

    def _execute_task(self, task_result: TaskResult[..., Any]) -> None:
        task = lease_task(task_result.task)
        if task.atomic:
            body = transaction.atomic(using=self.lease_options.using)(task.func)
            shown = unvalidated(**values(task) | {"func": body})
            object.__setattr__(task_result, "task", shown)
        super()._execute_task(task_result)  # type: ignore[misc]
        object.__setattr__(task_result, "task", task)


class DummyBackend(StrictBackend, compat.DummyBackend):
    """Only records: ``task_backends["default"].results``; ``clear()`` forgets them."""
