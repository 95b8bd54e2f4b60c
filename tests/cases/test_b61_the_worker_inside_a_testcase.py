"""B61: a test's connection is its own, and its transaction never commits."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_leasequeue.compat import TaskResultStatus
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.testing import run_tasks
from tests.databases import ALIASES
from tests.testing import tasks
from tests.testing.conftest import tasks_setting


class InATestCase:
    using: str

    def test_due_tasks_run_and_the_connection_stays_usable(self) -> None:
        tasks.found_twice.enqueue("a")
        tasks.found.enqueue("b")

        ran = run_tasks()

        assert [result.status for result in ran] == [
            TaskResultStatus.FAILED,
            TaskResultStatus.SUCCESSFUL,
        ]
        assert Group.objects.using(self.using).filter(name="b").exists()

    def test_what_is_enqueued_on_commit_runs_where_commits_are_captured(self: Any) -> None:
        with self.captureOnCommitCallbacks(using=self.using, execute=True) as callbacks:
            transaction.on_commit(partial(tasks.found.enqueue, "a"), using=self.using)
            assert run_tasks() == []

        assert len(callbacks) == 2, "the enqueue, and the wake-up that it causes"
        assert [result.return_value for result in run_tasks()] == [1]

    def test_run_inside_a_capture_nothing_is_done_twice(self: Any) -> None:
        tasks.told.clear()
        with self.captureOnCommitCallbacks(using=self.using, execute=True):
            tasks.tell_on_commit.enqueue("a")
            run_tasks()

        assert tasks.told == ["a"]

    def test_the_worker_says_what_to_use_instead(self) -> None:
        tasks.found.enqueue("a")

        with pytest.raises(CommandError, match=r"use django_leasequeue.testing.run_tasks\(\)"):
            call_command("leasequeue_worker", max_tasks=1)

        assert len(run_tasks()) == 1


@override_settings(TASKS=tasks_setting("default"))
class TestInATestCaseOnPostgreSQL(InATestCase, TestCase):
    using = "default"


@override_settings(TASKS=tasks_setting("sqlite"))
class TestInATestCaseOnSQLite(InATestCase, TestCase):
    databases = {"sqlite"}  # noqa: RUF012
    using = "sqlite"


class WithRealCommits:
    """Whichever test comes second finds what the first has left behind: nothing."""

    using: str

    def rows(self) -> list[int]:
        models = (Task, TaskTransition, Group)
        return [model.objects.using(self.using).count() for model in models]

    def leave_rows_behind(self) -> None:
        assert self.rows() == [0, 0, 0]
        for name in "abc":
            tasks.found.enqueue(name)

    def test_the_worker_works(self) -> None:
        self.leave_rows_behind()

        call_command("leasequeue_worker", max_tasks=1)

        assert self.rows() == [2, 5, 1]

    def test_so_does_the_helper(self) -> None:
        self.leave_rows_behind()

        run_tasks(limit=1)

        assert self.rows() == [2, 5, 1]

    def test_flush_empties_the_append_only_table(self) -> None:
        self.leave_rows_behind()

        call_command("flush", database=self.using, interactive=False, verbosity=0)

        assert self.rows() == [0, 0, 0]


@override_settings(TASKS=tasks_setting("default"))
class TestWithRealCommitsOnPostgreSQL(WithRealCommits, TransactionTestCase):
    using = "default"


@override_settings(TASKS=tasks_setting("sqlite"))
class TestWithRealCommitsOnSQLite(WithRealCommits, TransactionTestCase):
    databases = {"sqlite"}  # noqa: RUF012
    using = "sqlite"


@pytest.mark.parametrize(
    "using",
    [
        pytest.param(
            alias,
            marks=pytest.mark.django_db(databases=[alias], transaction=real),
            id=f"{alias}-{real}",
        )
        for alias in ALIASES
        for real in (False, True)
    ],
)
def test_pytests_equivalents(using: str, settings: Any) -> None:
    settings.TASKS = tasks_setting(using)
    tasks.found.enqueue("a")

    assert [result.return_value for result in run_tasks()] == [1]
