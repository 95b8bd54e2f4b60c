"""One run of Django's ``tests/tasks``: all that apply have to pass, and none may be missing."""

from __future__ import annotations

import os
import sys
import unittest
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

import django
from django.conf import global_settings
from django.test import TransactionTestCase
from django.test.runner import DiscoverRunner
from django.test.utils import override_settings

APPLICABLE: Final = {(6, 0): 71, (6, 1): 80}

IN_MEMORY = "marks the result in DummyBackend's list in memory; ours lie in the database"
DUMMY, IMMEDIATE = (
    "tasks.test_dummy_backend.DummyBackendTestCase",
    "tasks.test_immediate_backend.ImmediateBackendTestCase",
)
NOT_FOR_US: Final = {
    f"{DUMMY}.test_refresh_result": IN_MEMORY,
    f"{DUMMY}.test_refresh_result_async": IN_MEMORY,
    f"{IMMEDIATE}.test_cannot_get_result": "says that results can't be read; ours can",
    f"{IMMEDIATE}.test_cannot_refresh_result": "says that results can't be refreshed; ours can",
    f"{IMMEDIATE}.test_cannot_pass_run_after": "says that tasks can't be deferred; ours can",
}


class Runner(DiscoverRunner):
    """Django's runner; it leaves out what isn't for us, and is as strict about skipped tests."""

    def build_suite(
        self, test_labels: Sequence[str] | None = None, **options: Any
    ) -> unittest.TestSuite:
        found = super().build_suite(test_labels, **options)
        tests = [test for test in found if isinstance(test, unittest.TestCase)]
        if missing := NOT_FOR_US.keys() - {test.id() for test in tests}:
            sys.exit(f"Not in this Django's suite any more: {', '.join(sorted(missing))}")
        ours = [test for test in tests if test.id() not in NOT_FOR_US]
        if len(ours) != (expected := APPLICABLE[django.VERSION[:2]]):
            sys.exit(f"{len(ours)} tests apply, not {expected}: which ones are new?")
        return unittest.TestSuite(ours)

    def suite_result(
        self, suite: unittest.TestSuite, result: unittest.TestResult, **options: Any
    ) -> int:
        passed = result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
        print(f"{passed} of {suite.countTestCases()} pass. Left out:")
        for name, reason in NOT_FOR_US.items():
            print(f"  {name}\n    {reason}")
        return suite.countTestCases() - passed


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    with ExitStack() as swapped:
        swap(swapped)
        failures = Runner(interactive=False).run_tests(["tasks"])
    sys.exit(bool(failures))


def swap(swapped: ExitStack) -> None:
    """Our backends for Django's, and tests that may use a database."""
    from tests.acceptance import shims  # noqa: PLC0415  it needs the settings

    for place, ours in (
        ("django.tasks.backends.dummy.DummyBackend", shims.DummyBackend),
        ("django.tasks.backends.immediate.ImmediateBackend", shims.ImmediateBackend),
        ("django.test.SimpleTestCase", TransactionTestCase),
    ):
        swapped.enter_context(patch(place, ours))
    swapped.enter_context(override_settings(TASKS=global_settings.TASKS))


if __name__ == "__main__":
    main()
