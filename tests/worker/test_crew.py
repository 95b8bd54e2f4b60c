"""The threads of a worker, and what its main thread is told of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from django_leasequeue.worker.crew import Crew
from django_leasequeue.worker.readiness import CannotStartError
from django_leasequeue.worker.shutdown import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def crew(notes: Notes) -> Crew:
    return Crew("default", notes)


def never() -> bool:
    return False


def test_a_thread_that_fails_has_the_worker_stop(
    crew: Crew, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    crew.start("finisher", lambda: [][0])

    assert not notes.wait_for(never, seconds=10, stops=1)
    assert notes.stops == 1
    crew.join("finisher")
    assert (crew.failed, crew.refusal, crew.at_work) == (True, None, set())
    assert "the worker's finisher failed" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_fails_by_the_log_does_so_too(
    crew: Crew, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has closed stderr, say: the worker went on without that thread, and renewed what its
    leases were."""

    def closed(*_: object) -> None:
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(logging.getLogger("django_leasequeue"), "exception", closed)
    crew.start("finisher", closed)

    assert not notes.wait_for(never, seconds=10, stops=1)
    crew.join("finisher")
    assert (crew.failed, crew.at_work) == (True, set())


def test_a_thread_that_refuses_has_it_stop_without_a_failure(crew: Crew, notes: Notes) -> None:
    refusal = CannotStartError("no tables")

    def refuse() -> None:
        raise refusal

    crew.start("claimer", refuse)

    assert not notes.wait_for(never, seconds=10, stops=1)
    assert notes.stops == 1
    assert (crew.failed, crew.refusal) == (False, refusal)


def too_many_open_files(work: Callable[[], None]) -> None:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize(("using", "within"), [("no such", None), ("default", too_many_open_files)])
def test_a_thread_that_can_t_be_set_up_has_failed(
    using: str,
    within: Callable[[Callable[[], None]], None] | None,
    notes: Notes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = Crew(using, notes)
    crew.start("runner-1", lambda: None, within=within)

    assert not notes.wait_for(never, seconds=10, stops=1)
    crew.join("runner-1")
    assert (crew.failed, crew.at_work) == (True, set())
    assert "the worker's runner-1 failed" in caplog.text


def test_a_thread_that_ends_has_the_main_thread_look(crew: Crew, notes: Notes) -> None:
    over = threading.Event()
    crew.start("claimer", over.wait)  # type: ignore[arg-type]
    assert crew.at_work == {"claimer"}

    over.set()

    assert notes.wait_for(lambda: not crew.at_work, seconds=10)
    assert notes.stops == 0


def test_only_the_named_are_waited_for(crew: Crew) -> None:
    over = threading.Event()
    crew.start("runner-1", over.wait)  # type: ignore[arg-type]
    crew.start("finisher", lambda: None)

    crew.join("finisher")
    assert crew.at_work == {"runner-1"}

    over.set()
    crew.join("runner")
    assert crew.at_work == set()


def test_a_second_stop_ends_any_wait(notes: Notes) -> None:
    notes.stop()
    assert not notes.wait_for(never, seconds=0.01)
    assert notes.stops == 1

    notes.stop()
    assert not notes.wait_for(never, seconds=10)
