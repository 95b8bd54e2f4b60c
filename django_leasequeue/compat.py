"""One door to django.tasks: Django's own from 6.0 on, the backport before it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar
from weakref import ref

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    TASKS_LOGGER = "django.tasks"
else:
    from django_tasks import TaskResultStatus, default_task_backend, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.dummy import DummyBackend
    from django_tasks.backends.immediate import ImmediateBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult
    from django_tasks.exceptions import InvalidTaskError as InvalidTask, TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

    TASKS_LOGGER = "django_tasks"

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    GenericTask = Task
else:

    class GenericTask(Task, Generic[P, R]):
        """Task with its parameters and its return type, which Django tells type checkers only."""

        __slots__ = ()


def enqueues_are_heard() -> bool:
    """Whether anybody wants to be told of an enqueue: Django's own receiver only writes a log."""
    if logging.getLogger(TASKS_LOGGER).isEnabledFor(logging.DEBUG):
        return True
    kept = [receiver for _, receiver, *_ in task_enqueued.receivers]
    known = (each() if isinstance(each, ref) else each for each in kept)
    return any(getattr(each, "__module__", "") != f"{TASKS_LOGGER}.signals" for each in known)
