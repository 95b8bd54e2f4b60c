"""The task itself: how it is made, found again, and what follows when it fails."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import sys
import types
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest

from django_leasequeue import InvalidTaskError
from django_leasequeue.compat import BaseTaskBackend, InvalidTask, task_backends
from django_leasequeue.conf import Options
from django_leasequeue.errors import TaskNotAllowedError, TaskNotFoundError
from django_leasequeue.tasks import LeaseTask, failure_of, resolve, task

from . import tasks

loosely: Any = task  # to be called wrongly
HERE = Options(task_modules=("tests.backend",))


def test_a_task_is_still_its_function() -> None:
    assert tasks.send.call("ada", subject="hello") == "hello to ada"
    answer: Any = asyncio.run(tasks.send_later.acall("ada"))
    assert answer == "ada"


def test_a_task_carries_what_the_decorator_was_given() -> None:
    assert (tasks.limited.priority, tasks.limited.max_attempts) == (7, 2)
    assert (tasks.limited.visibility, tasks.limited.max_lease, tasks.limited.timeout) == (10, 20, 5)
    assert tasks.number.takes_context


def test_the_decorator_stands_bare(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": "django_leasequeue.backend.LeaseQueueBackend"}}

    assert task(tasks.plain) == task()(tasks.plain)


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="Django 6.0 takes no such argument")
def test_djangos_own_decorator_makes_the_same_task() -> None:
    module = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    django_task = sys.modules[module].task

    made = django_task(queue_name="mail", max_attempts=3, backoff=tasks.patiently)(tasks.plain)

    assert made == task(queue_name="mail", max_attempts=3, backoff=tasks.patiently)(tasks.plain)


def test_using_changes_a_copy_and_keeps_the_rest() -> None:
    changed = tasks.limited.using(tenant="acme", run_after=timedelta(minutes=5))

    assert (changed.tenant, changed.run_after) == ("acme", timedelta(minutes=5))
    assert (changed.max_attempts, changed.priority) == (2, 7)
    assert changed.using(priority=1).tenant == "acme"
    assert changed.using(tenant="") == tasks.limited.using(run_after=timedelta(minutes=5))


@pytest.mark.parametrize("made", [tasks.send.using(tenant="acme"), tasks.clumsy, tasks.number])
def test_a_task_survives_pickling(made: LeaseTask[..., Any]) -> None:
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301  our own


def test_a_pickled_task_that_is_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(tasks.send)
    monkeypatch.setattr(tasks, "send", "no task any more")

    with pytest.raises(ValueError, match=r"Expected 'tests\.backend\.tasks\.send' to point to"):
        pickle.loads(pickled)  # noqa: S301


def in_main() -> None: ...


in_main.__module__ = "__main__"


class Holder:
    @staticmethod
    def method() -> None: ...


async def asynchronous() -> None: ...


def nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    "function",
    [in_main, Holder.method, nested(), lambda: None, print],
    ids=["in __main__", "in a class", "nested", "lambda", "builtin"],
)
def test_a_function_that_no_worker_could_find_is_refused_at_definition(
    function: Callable[..., Any],
) -> None:
    """B55"""
    for expected in (InvalidTaskError, InvalidTask):
        with pytest.raises(expected, match="must be defined at a module level"):
            task(queue_name="mail")(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"visibility": 0}, "visibility must be from"),
        ({"visibility": 60, "max_lease": 30}, "max_lease must not be smaller than visibility"),
        ({"timeout": math.nan}, "timeout must be from"),
        ({"backoff": 5}, "backoff must be a function"),
        ({"atomic": "default"}, "atomic must be True or False"),
        ({"queue_name": "nowhere"}, "Queue 'nowhere' is not valid for backend"),
        ({"takes_context": True}, "first argument of 'context'"),
    ],
)
def test_a_limit_out_of_bounds_is_refused_at_definition(
    options: dict[str, Any], message: str
) -> None:
    for expected in (InvalidTaskError, InvalidTask):
        with pytest.raises(expected, match=message):
            loosely(**{"queue_name": "mail", **options})(tasks.plain)


def test_an_async_function_is_refused_as_atomic_at_definition() -> None:
    for expected in (InvalidTaskError, InvalidTask):
        with pytest.raises(expected, match="atomic is for sync functions"):
            task(queue_name="mail", atomic=True)(asynchronous)


@pytest.mark.parametrize("name", ["run_after", "tenant", "dedupe_key", "retries"])
def test_what_belongs_to_a_call_is_no_argument_of_the_decorator(name: str) -> None:
    with pytest.raises(TypeError, match=f"@task takes no {name}"):
        loosely(**{name: None})


def test_a_task_of_another_backend_can_use_ours(settings: Any) -> None:
    dummy = BaseTaskBackend.__module__.replace("base", "dummy")
    settings.TASKS = {
        "default": {"BACKEND": "django_leasequeue.backend.LeaseQueueBackend", "QUEUES": []},
        "dummy": {"BACKEND": f"{dummy}.DummyBackend"},
    }
    other = task_backends["dummy"].task_class(
        func=tasks.plain,
        priority=0,
        queue_name="default",
        backend="dummy",
        run_after=None,
        takes_context=False,
    )

    assert other.using(backend="default").module_path == "tests.backend.tasks.plain"


def test_a_path_leads_to_its_task() -> None:
    assert resolve("tests.backend.tasks.send", HERE) is tasks.send
    assert resolve("example_project.orders.tasks.process_order", Options()).name == "process_order"


@pytest.mark.parametrize("path", ["this.s", "tests.backend.tasks.send", "os.system", "send", ""])
def test_a_path_outside_is_never_imported(path: str) -> None:
    sys.modules.pop("this", None)

    with pytest.raises(TaskNotAllowedError, match="nothing was imported"):
        resolve(path, Options(task_modules=("tests.back", "tests.backend.tasks.sen")))
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tests.backend.tasks.renamed", "renamed"),
        ("tests.backend.nowhere.send", "No module named"),
        ("tests.backend.tasks.plain", "it is a function"),
        ("tests.backend.tasks", "it is a module"),
        ("tests.backend..", "Error"),
    ],
)
def test_a_path_that_leads_to_no_task_says_why(path: str, why: str) -> None:
    """B55"""
    with pytest.raises(TaskNotFoundError, match=why) as error:
        resolve(path, HERE)
    assert repr(path) in str(error.value)


def test_a_module_that_breaks_when_imported_is_no_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tasks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(TaskNotFoundError, match="ZeroDivisionError"):
        resolve("broken_tasks.send", Options(task_modules=("broken_tasks",)))


ATTEMPT: Any = types.SimpleNamespace(attempts=2)


class SlowDown(Exception):
    retry_after = 7


@pytest.mark.parametrize(
    ("failed", "error", "follows"),
    [
        (tasks.send, ValueError(), (True, None)),
        (tasks.patient, ValueError(), (True, 20.0)),
        (tasks.patient, KeyError(), (False, None)),
        (tasks.patient, SlowDown(), (True, None)),
        (None, TaskNotFoundError("a.b", "gone"), (True, None)),
        (None, TaskNotAllowedError("a.b"), (False, None)),
    ],
)
def test_what_follows_a_failure(
    failed: LeaseTask[..., Any] | None, error: Exception, follows: tuple[bool, float | None]
) -> None:
    assert failure_of(failed, error, ATTEMPT) == follows


@pytest.mark.parametrize(
    "answer",
    [lambda *_: 1 / 0, lambda *_: sys.exit(), lambda *_: "soon", lambda *_: timedelta(1)],
    ids=["raises", "exits", "text", "timedelta"],
)
def test_a_backoff_that_fails_leaves_it_to_the_queue(
    answer: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    failed = task(queue_name="mail", backoff=answer)(tasks.plain)

    with caplog.at_level(logging.ERROR, "django_leasequeue"):
        assert failure_of(failed, ValueError(), ATTEMPT) == (True, None)
    assert "backoff of tests.backend.tasks.plain failed" in caplog.text
