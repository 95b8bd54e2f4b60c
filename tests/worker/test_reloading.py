"""Under DEBUG a worker takes up changed code, as runserver does."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from django_leasequeue.compat import task_backends
from django_leasequeue.worker import Worker, reloading
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for

from . import tasks
from .conftest import Site, wait_until_said

pytestmark = [
    on_all,
    pytest.mark.timeout(240),  # it starts Django some six times
]


class Code:
    """A module that a worker process imports at its start, and that says so."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "edited_by_a_test.py"
        self.write("1")

    def write(self, number: str) -> None:
        self.file.write_text(f"import sys\nsys.stderr.write('code %d\\n' % {number})\n")

    def start(self, site: Site, *arguments: str) -> Any:
        place = {"PYTHONPATH": str(self.file.parent), "FURTHER_APPS": self.file.stem}
        process = site.start(*arguments, **place, DEBUG="True", PYTHONDONTWRITEBYTECODE="1")
        wait_until_said(process, "started")
        return process

    def edit(self, process: Any, number: str, words: str) -> None:
        """Change the code until the worker says *words*: it may not have looked yet before."""
        for _ in range(20):
            self.write(number)
            with suppress(AssertionError):
                wait_for(lambda: any(words in line for line in process.lines), 3)
                return
        raise AssertionError("".join(process.lines))


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


def test_changed_code_is_taken_up_when_the_running_task_has_ended(
    postgres: Site, code: Code
) -> None:
    """G48"""
    worker = code.start(postgres)
    postgres.enqueue(tasks.take_long, 4 / 3 * tasks.RENEWED)
    wait_for(lambda: "leased" in postgres.kinds())

    code.edit(worker, "2", "code 2")

    wait_for(lambda: starts(worker) >= 2)
    postgres.enqueue(tasks.add, 1, 1)
    wait_for(lambda: postgres.kinds().count("acked") == 2)
    assert "lapsed" not in postgres.kinds()
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def test_code_that_does_not_start_leaves_the_old_code_at_work(postgres: Site, code: Code) -> None:
    """G48"""
    worker = code.start(postgres)

    code.edit(worker, "(", "not restarted")

    postgres.enqueue(tasks.add, 1, 1)
    wait_for(lambda: "acked" in postgres.kinds())
    code.edit(worker, "3", "code 3")
    wait_for(lambda: starts(worker) >= 2)


def test_no_reload_leaves_it_running(postgres: Site, code: Code) -> None:
    worker = code.start(postgres, "--no-reload")

    assert not any("watching" in line for line in worker.lines)


def test_a_worker_told_to_stop_while_the_code_is_tried_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G40: a second time would be final, for the tasks that run."""
    worker = Worker(task_backends["worker on default"], ["work"])  # type: ignore[arg-type]
    monkeypatch.setattr(reloading, "trial", worker.stopping.set)

    reloading.Reloader(worker).meet_change()

    assert worker.notes.told.empty()


def starts(worker: Any) -> int:
    return sum("started worker=" in line for line in worker.lines)


def the_new_code(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(reloading, "arguments", lambda: [sys.executable, "-S", "-E", "-c", code])


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", ""),
        ("import sys; sys.stderr.write('a warning')", ""),
        ("raise SystemExit('a traceback\\nSyntaxError: no')", "SyntaxError: no"),
        ("import sys; sys.exit(3)", "exit status 3"),
    ],
    ids=["starts", "warns", "doesn't", "says nothing"],
)
def test_what_keeps_the_code_from_starting_is_its_last_line(
    monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    the_new_code(monkeypatch, code)

    assert reloading.trial() == problem


def test_a_worker_ends_for_code_that_starts_and_begins_again_unless_it_is_stopped_besides(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G48"""
    worker = Worker(task_backends["worker on default"], ["work"])  # type: ignore[arg-type]
    reloader = reloading.Reloader(worker)
    trials = iter(["a typo", "a typo", "another", ""])
    monkeypatch.setattr(reloading, "trial", lambda: next(trials))
    monkeypatch.setattr(reloading, "RETRY_SECONDS", 0)
    assert not reloader.wanted()

    reloader.meet_change()
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["a typo", "another"]
    assert worker.is_done()
    assert (worker.grace, reloader.wanted()) == (5.0, True)
    worker.stop()
    worker.notes.wait_for(lambda: False, stops=1)
    assert not reloader.wanted()


def test_a_first_stop_while_it_ends_for_new_code_lets_run_what_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G40, G48: it ends for good then, but no sooner."""
    monkeypatch.setattr(reloading, "trial", lambda: "")
    site.enqueue(tasks.wait_at_the_gate)
    with site.worker() as worker:
        wait_for(lambda: len(worker.deliveries.running) == 1)
        reloader = reloading.Reloader(worker)
        reloader.meet_change()
        wait_for(worker.stopping.is_set)

        worker.stop()
        wait_for(worker.notes.told.empty)
        tasks.gate.set()
        wait_for(lambda: not worker.deliveries.in_hand())  # before a second stop is one

    assert site.kinds()[-1] == "acked"
    assert "unfinished" not in caplog.text
    assert not reloader.wanted()
