"""One door to django.tasks: Django's own from 6.0 on, the backport before it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import django
from django.dispatch import Signal

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )

    TASKS_LOGGER = "django.tasks"
else:
    from django_tasks import TaskResultStatus, default_task_backend, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.dummy import DummyBackend
    from django_tasks.backends.immediate import ImmediateBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult
    from django_tasks.exceptions import InvalidTaskError as InvalidTask, TaskResultDoesNotExist
    from django_tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )

    TASKS_LOGGER = "django_tasks"

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    GenericTask = Task
else:

    class GenericTask(Task, Generic[P, R]):
        """Task with its parameters and its return type, which Django tells type checkers only."""

        __slots__ = ()


tasks_logger = logging.getLogger(TASKS_LOGGER)
# No set: a receiver's dispatch_uid need not be hashable.
own_receivers = [id(each) for each in (log_task_enqueued, log_task_started, log_task_finished)]


def heard(signal: Signal, level: int) -> bool:
    """Whether anybody wants to be told: Django's own receiver only writes a log, at *level*.

    To send a signal takes longer than to look for who is there.
    """
    return tasks_logger.isEnabledFor(level) or any(
        key not in own_receivers for (key, _), *_ in signal.receivers
    )
