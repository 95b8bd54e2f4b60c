"""B48: the admin shows and redrives tasks whose code is gone, and imports nothing for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from django_leasequeue import Queue
from tests.admin.desk import Desk, a_dead_letter, number, states

MARK = "(not found in the code any more)"
GONE = [
    "no_such_package.tasks.mail",  # the package
    "tests.admin.no_such_module.mail",  # the module
    "tests.admin.desk.no_such_function",  # the function
    "no dots",
    "a..b",
    "../../etc/passwd.mail",
]


@pytest.fixture
def raising_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a task whose module, and the package around it, must not be imported."""
    package = tmp_path / "b48_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tasks.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return "b48_package.tasks.mail"


@pytest.mark.parametrize("path", GONE)
def test_every_page_shows_the_path_as_text(desk: Desk, emails: Queue, path: str) -> None:
    letter = a_dead_letter(emails, "a", path=path)

    for query in ({}, {"q": path}, {"of_task": path}):
        assert path in desk.page(**query).content.decode()
    story = desk.story(letter).content.decode()
    assert path in story
    assert MARK in story
    assert desk.redrive(letter).startswith("1 redriven.")
    assert states(emails, "a") == ["ready"]


def test_a_module_that_raises_is_not_imported(
    desk: Desk, emails: Queue, raising_module: str
) -> None:
    """G43"""
    letter = a_dead_letter(emails, "a", path=raising_module)

    pages = [desk.page(), desk.page(q="b48"), desk.story(letter), desk.ask(letter)]

    assert all(page.status_code == 200 for page in pages)
    assert not any(name.startswith("b48_package") for name in sys.modules)
    assert MARK not in desk.story(letter).content.decode()


def test_code_that_is_there_is_not_marked(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a", path="tests.admin.desk.poll")

    assert MARK not in desk.story(letter).content.decode()


@pytest.mark.parametrize("path", GONE)
def test_a_waiting_task_has_its_pages_and_can_be_cancelled(
    tasks: Desk, log: Desk, emails: Queue, path: str
) -> None:
    emails.enqueue({}, id="a", path=path)
    task = number(emails, "a")

    for query in ({}, {"q": path}, {"of_task": path}):
        assert path in tasks.page(**query).content.decode()
    assert MARK in tasks.story(task).content.decode()
    assert path in log.story(task).content.decode()
    assert tasks.cancel(task) == "1 cancelled."


def test_nor_is_it_for_the_other_pages(
    tasks: Desk, log: Desk, emails: Queue, raising_module: str
) -> None:
    emails.enqueue({}, id="a", path=raising_module)
    task = number(emails, "a")

    pages = [tasks.page(), tasks.story(task), tasks.ask(task, verb="cancel"), log.story(task)]

    assert all(page.status_code == 200 for page in pages)
    assert not any(name.startswith("b48_package") for name in sys.modules)
