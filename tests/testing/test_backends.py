"""Backends for the settings of tests: they run at once or only record, and are as strict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_leasequeue.compat import InvalidTask, TaskResultStatus, task_backends
from django_leasequeue.tasks import RefusedTaskError

from . import tasks
from .conftest import tasks_setting

IMMEDIATE, DUMMY = (
    f"django_leasequeue.testing.backends.{name}Backend" for name in ("Immediate", "Dummy")
)


@pytest.fixture(params=[IMMEDIATE, DUMMY])
def backend(request: pytest.FixtureRequest, settings: Any) -> str:
    settings.TASKS = tasks_setting("default", backend=request.param)
    name: str = request.param
    return name


def test_our_arguments_are_accepted(backend: str) -> None:
    """No database is asked: pytest-django would refuse it here."""
    task = tasks.describe.using(
        priority=7, queue_name="other", tenant="x", dedupe_key="k", run_after=timedelta(hours=1)
    )

    result = task.enqueue(word="ok")

    if backend == IMMEDIATE:
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, [1, "ok"])
    else:
        assert result.status == TaskResultStatus.READY
        [recorded] = task_backends["default"].results  # type: ignore[attr-defined]
        assert (recorded.kwargs, recorded.task.tenant) == ({"word": "ok"}, "x")


@pytest.mark.django_db
def test_an_atomic_task_that_fails_leaves_nothing(settings: Any) -> None:
    settings.TASKS = tasks_setting("default", backend=IMMEDIATE)

    failed = tasks.found_atomically.enqueue("a", "default", "fail")
    done = tasks.found_atomically.enqueue("b", "default")

    assert "after the write" in failed.errors[0].traceback
    assert (done.return_value, done.task) == ("b", tasks.found_atomically)
    assert list(Group.objects.values_list("name", flat=True)) == ["b"]


def test_without_a_queue_there_are_no_effects_to_record(settings: Any) -> None:
    settings.TASKS = tasks_setting("default", backend=IMMEDIATE)

    result = tasks.tell_once.enqueue("a")

    assert "LookupError: no worker is running a task here" in result.errors[0].traceback


@pytest.mark.parametrize("argument", [{1}, float("nan"), "\x00", {"a": "\ud83d"}])
def test_what_the_queue_could_not_store_is_refused(backend: str, argument: Any) -> None:
    with pytest.raises(RefusedTaskError, match=r"payload at kwargs\.word") as refused:
        tasks.describe.enqueue(word=argument)

    assert isinstance(refused.value, TypeError)
    if backend == DUMMY:
        assert task_backends["default"].results == []  # type: ignore[attr-defined]


def test_so_is_a_limit_out_of_bounds(backend: str) -> None:
    with pytest.raises(InvalidTask, match="tenant has 101 characters"):
        tasks.describe.using(tenant="x" * 101)


def test_djangos_own_decorator_makes_our_tasks(backend: str) -> None:
    assert task_backends["default"].task_class is type(tasks.describe)
