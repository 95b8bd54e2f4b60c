"""The examples of docs/testing.md do what they say."""

from __future__ import annotations

import inspect
import re
import sys
import unittest
from pathlib import Path
from typing import Any, Final

import pytest
from django.utils.module_loading import import_string

from django_leasequeue.backend import LeaseTaskBackend
from django_leasequeue.testing.conformance import WorkQueueConformance

from . import shop

PAGE: Final = Path(__file__).resolve().parent.parent.parent / "docs/testing.md"
TASK, TESTCASE, PYTEST, MEMORY, SETTINGS, CONFORMANCE = re.findall(
    r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL
)


@pytest.fixture(autouse=True)
def shop_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.tasks", shop)


def names_of(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  it is our own
    return names


def test_the_task_is_the_one_they_share() -> None:
    function = TASK[TASK.index("@task") :]

    assert function.replace(" ", "") in inspect.getsource(shop).replace(" ", "")


def test_in_a_testcase(using: str) -> None:
    case = names_of(TESTCASE)["ReceiptTests"]
    case.databases = {using}

    unittest.TestSuite([case("test_a_paid_order_gets_its_receipt")]).debug()


def test_in_pytest(using: str) -> None:
    names_of(PYTEST)["test_a_receipt_that_failed_is_tried_again"]()


def test_in_memory() -> None:
    names_of(MEMORY)["test_a_worker_that_is_away_for_too_long_loses_its_lease"]()


def test_in_settings() -> None:
    [setting] = names_of(SETTINGS)["TASKS"].values()

    assert issubclass(import_string(setting["BACKEND"]), LeaseTaskBackend)


def test_as_a_suite(clock: Any) -> None:
    mine = names_of(CONFORMANCE)["TestMyQueue"]()

    assert isinstance(mine, WorkQueueConformance)
    mine.test_first_come_first_served(mine.make_queue(clock=clock))
