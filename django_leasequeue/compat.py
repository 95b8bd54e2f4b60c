"""One door to django.tasks: Django's own from 6.0 on, the backport before it."""

from __future__ import annotations

try:
    from django.tasks import TaskResultStatus, default_task_backend, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks import (  # type: ignore[no-redef, unused-ignore]
        TaskResultStatus,
        default_task_backend,
        task_backends,
    )
    from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment, unused-ignore]
    from django_tasks.base import (  # type: ignore[assignment, unused-ignore]
        Task,
        TaskContext,
        TaskError,
        TaskResult,
    )
    from django_tasks.exceptions import (  # type: ignore[assignment, unused-ignore]
        InvalidTaskError as InvalidTask,
        TaskResultDoesNotExist,
    )
    from django_tasks.signals import (  # type: ignore[assignment, unused-ignore]
        task_enqueued,
        task_finished,
        task_started,
    )

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "default_task_backend",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
