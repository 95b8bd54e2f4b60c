"""Tasks as django.tasks knows them, with what a queue of leases adds to them.

Where the backend is ours, Django's own ``@task`` makes the same tasks; Django 6.0's doesn't pass
the additional arguments on, so ``@task`` from here is the one that works everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import chain, count
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    NoReturn,
    TypedDict,
    Unpack,
    overload,
)

from asgiref.sync import sync_to_async
from django.apps import apps
from django.utils.module_loading import import_string

from .compat import GenericTask, InvalidTask, P, R, Task
from .conf import Options
from .errors import InvalidTaskError, TaskNotAllowedError, TaskNotFoundError
from .validation import DEPTH_MAX

if TYPE_CHECKING:
    from .compat import TaskResult
    from .worker.context import LeaseContext

    Backoff = Callable[[BaseException, TaskResult[..., Any]], float | None]

Arguments = Sequence[Any] | Mapping[str, Any]  # positional or named ones

logger = logging.getLogger("django_leasequeue")


class RefusedTaskError(InvalidTaskError, InvalidTask, TypeError):
    """What can't be queued, to be caught by our name and by those that django.tasks raises."""


class Refusals:
    """Turns what can't be queued into RefusedTaskError, with *prefix* before its words."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, InvalidTask | InvalidTaskError):
            raise RefusedTaskError(f"{self.prefix}{error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTask(GenericTask[P, R]):
    """A task function, and how its tasks are queued.

    What is None comes from the queue's policy; times are seconds.

    Args:
        run_after: not before this instant, or this long after the enqueue.
        tenant: whose task it is; tenants take turns.
        dedupe_key: at most one live task of (queue, tenant) has it.
        max_attempts: deliveries before the dead-letter queue.
        backoff: answers how long to wait after a failed attempt, None: no further attempt. Gets
            the exception and the attempt's TaskResult. An error's own ``retry_after`` comes first.
        timeout: how long an attempt may take; None: as long as its lease can be renewed.
        visibility: length of a lease.
        max_lease: longest total life of one lease, however often it is renewed.
        atomic: the function runs in a transaction of the queue's database, and the
            acknowledgement commits with it. Not for async functions: transactions aren't, either.
    """

    run_after: datetime | timedelta | None = None  # type: ignore[assignment]
    tenant: str = ""
    dedupe_key: str | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | None = None
    visibility: float | None = None
    max_lease: float | None = None
    atomic: bool = False

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        tenant: str | None = None,
        dedupe_key: str | None = None,
    ) -> LeaseTask[P, R]:
        """A task that is queued otherwise; what is None stays as it is.

        Raises:
            RefusedTaskError: a value that can't be stored, or a queue that isn't the backend's.
        """
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "tenant": tenant,
            "dedupe_key": dedupe_key,
        }
        return replace(self, **{k: v for k, v in changes.items() if v is not None})

    def enqueue_many(self, calls: Iterable[Arguments]) -> Sequence[TaskResult[P, R]]:
        """Enqueue once for each of *calls*, all or none, in the caller's transaction.

        Args:
            calls: of each the positional arguments, a list or tuple, or those by name, a mapping.

        Returns:
            A result each, in order, made when it is asked for; of a duplicate, that of the task
            that is stored already.

        Raises:
            RefusedTaskError: naming the item's index and what can't be stored; nothing was.
            QueueUnavailableError: the database can't be reached.
        """
        backend: Any = self.get_backend()
        results: Sequence[TaskResult[P, R]] = backend.enqueue_many(self, calls)
        return results

    async def aenqueue_many(self, calls: Iterable[Arguments]) -> Sequence[TaskResult[P, R]]:
        """See enqueue_many()."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(calls)

    def __reduce__(self) -> tuple[Any, ...]:
        # By path, as Django does from 6.1 on: the function's name leads to the task, not to it.
        # Functions are the code's, so that a backoff need not be importable.
        state = {name: value for name, value in values(self).items() if not callable(value)}
        return (restored, (self.module_path, state))


def arguments(index: int, call: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The positional and the named arguments of *call*, the one of that *index*.

    Raises:
        RefusedTaskError: neither a list or tuple nor a mapping.
    """
    match call:
        case list() | tuple():
            return call, {}
        case Mapping():
            return (), call
    raise RefusedTaskError(
        f"item {index}: arguments must be a list, a tuple or a mapping, not {type(call).__name__}"
    )


def values(task: Task[..., Any]) -> dict[str, Any]:
    return {field.name: getattr(task, field.name) for field in fields(task)}


def restored(path: str, state: Mapping[str, Any]) -> LeaseTask[..., Any]:
    """An unpickled task.

    Raises:
        ValueError: there is no task at *path*.
    """
    try:
        found = import_string(path)
    except ImportError:
        found = None
    if not isinstance(found, Task):
        raise ValueError(f"Expected {path!r} to point to a Task instance.")
    return replace(lease_task(found), **state)


def unvalidated(**given: Any) -> LeaseTask[..., Any]:
    """A task as it was stored, whatever today's code and settings would say of it."""
    task: LeaseTask[..., Any] = object.__new__(LeaseTask)
    for field in fields(LeaseTask):
        object.__setattr__(task, field.name, given.get(field.name, field.default))
    return task


def lease_task(task: Task[..., Any]) -> LeaseTask[..., Any]:
    """*task*, which another backend's ``@task`` may have made, as one of ours."""
    return task if isinstance(task, LeaseTask) else unvalidated(**values(task))


class TaskOptions(TypedDict, total=False):
    """What ``@task`` takes beside ``takes_context``; see LeaseTask."""

    priority: int
    queue_name: str
    backend: str
    max_attempts: int | None
    backoff: Backoff | None
    timeout: float | None
    visibility: float | None
    max_lease: float | None
    atomic: bool


DEFAULTS: Final[Mapping[str, Any]] = {
    "priority": 0,
    "queue_name": "default",
    "backend": "default",
    "takes_context": False,
}


@overload
def task(function: Callable[P, R], /) -> LeaseTask[P, R]: ...
@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[TaskOptions]
) -> Callable[[Callable[Concatenate[LeaseContext, P], R]], LeaseTask[P, R]]: ...
@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, R]], LeaseTask[P, R]]: ...
def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a task of a function of a module: Django's ``@task`` with more arguments.

    Raises:
        RefusedTaskError: not a function of an importable module, or an argument out of bounds.
    """
    if unknown := sorted(set(options) - TaskOptions.__annotations__.keys() - {"takes_context"}):
        raise TypeError(f"@task takes no {', '.join(unknown)}; see LeaseTask.using()")

    def wrapped(function: Callable[..., Any]) -> LeaseTask[..., Any]:
        return LeaseTask(func=function, **{**DEFAULTS, **options})

    return wrapped(function) if function else wrapped


def check_importable(function: Callable[..., Any]) -> None:
    """Refuse a function that a worker could not find by its path.

    Raises:
        InvalidTaskError: it lies in ``__main__``, in a class or in a function, or has no name.
    """
    if function.__module__ == "__main__" or not function.__qualname__.isidentifier():
        raise InvalidTaskError(
            "Task function must be defined at a module level, under a name that can be imported: "
            f"{function.__module__}.{function.__qualname__} can't"
        )


def resolve(path: str, options: Options) -> LeaseTask[..., Any]:
    """The task at a dotted *path*; imports its module.

    Raises:
        TaskNotAllowedError: outside the installed apps and ``task_modules``; nothing was imported.
        TaskNotFoundError: it doesn't import, or is no task.
    """
    if not allowed(path, options):
        raise TaskNotAllowedError(path)
    try:
        found = import_string(path)
    except Exception as error:  # a module of the site's may raise anything while it is imported
        raise TaskNotFoundError(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Task):
        raise TaskNotFoundError(path, f"it is a {type(found).__name__}")
    return lease_task(found)


def find(path: str, options: Options) -> LeaseTask[..., Any]:
    """The task at *path*; where there is none, one that says so when it is called."""
    try:
        return resolve(path, options)
    except (TaskNotAllowedError, TaskNotFoundError):
        return lost(path)


@cache  # so that two results of a lost task are equal
def lost(path: str) -> LeaseTask[..., Any]:
    """What stands for a task that can't be found, or may not be imported."""

    def function(*_: Any, **__: Any) -> NoReturn:
        raise TaskNotFoundError(path, "it wasn't there, or not allowed, when its result was read")

    function.__module__, _, function.__name__ = path.rpartition(".")
    function.__qualname__ = function.__name__
    return unvalidated(func=function, **DEFAULTS)


def allowed(path: str, options: Options) -> bool:
    """Whether the module of *path* may be imported to run a task."""
    modules = [app.name for app in apps.get_app_configs()] + list(options.task_modules)
    return any(path.startswith(f"{module}.") for module in modules)


def failure_of(
    task: LeaseTask[..., Any] | None, error: BaseException, task_result: TaskResult[..., Any]
) -> tuple[bool, float | None]:
    """Whether an attempt that ended in *error* may be followed by another, and when.

    Args:
        task: None where it wasn't found.

    Returns:
        Whether it is retryable, and the seconds to wait; None: the error's own ``retry_after``,
        else the queue's policy.
    """
    if isinstance(error, TaskNotAllowedError):
        return False, None
    if task is None or task.backoff is None:
        return True, None
    try:
        delay = task.backoff(error, task_result)
        if not isinstance(delay, float | int | None):
            raise TypeError(f"backoff must return seconds or None, not {type(delay).__name__}")
        own = getattr(error, "retry_after", None)
    except BaseException:  # the failure that it was asked about has to be recorded all the same
        logger.exception("backoff of %s failed; the queue's own applies", task.module_path)
        return True, None
    return delay is not None, None if own is not None else delay


PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def is_flat(value: Any) -> bool:
    """Whether *value* is a list, tuple or dict of nothing but text, numbers, truth and null."""
    if type(value) is dict:
        return PLAIN.issuperset(map(type, value)) and PLAIN.issuperset(map(type, value.values()))
    return type(value) in (list, tuple) and PLAIN.issuperset(map(type, value))


def are_flat(calls: Sequence[Any]) -> bool:
    """Whether all of *calls* are flat, and either positional or named: asked of all in one go."""
    kinds = set(map(type, calls))
    if not (kinds <= {list, tuple} or kinds == {dict}):
        return False
    named = map(dict.values, calls) if kinds == {dict} else ()
    return PLAIN.issuperset(map(type, chain.from_iterable(chain(calls, named))))


def payloads_of(calls: Iterable[Arguments]) -> Iterable[dict[str, Any]]:
    """What is stored of each of *calls*, made when it is wanted, while others are being stored.

    But where a class of the site's own may ask the database, which is busy then, at once.
    """
    each = list(calls)
    given = map(arguments, count(), each)
    if are_flat(each):
        return ({"args": args, "kwargs": kwargs} for args, kwargs in given)
    return [{"args": json_value(args), "kwargs": json_value(kwargs)} for args, kwargs in given]


def json_value(value: Any, depth: int = 0) -> Any:
    """*value* as Django's backends store it: bytes as text, mappings as dicts, sequences as lists.

    What isn't JSON stays in its place: the queue names the path when it refuses it.
    """
    if type(value) in PLAIN or depth > DEPTH_MAX:
        return value
    if is_flat(value):  # as most are
        return dict(value) if type(value) is dict else list(value)
    match value:
        case str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        case dict() | Mapping():
            return {
                json_value(key) if isinstance(key, bytes) else key: json_value(item, depth + 1)
                for key, item in value.items()
            }
        case list() | tuple() | Sequence():
            return [json_value(item, depth + 1) for item in value]
        case _:
            return value
