"""A signal is obeyed whatever the main thread does as it comes: about to wait, or waiting.

Python notes a signal at once and runs its handler between two steps of the main thread. One that
comes as the main thread is about to wait doesn't end the wait. Here it is given to another
thread, which comes to the same, each time.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import pytest

from django_leasequeue.worker.shutdown import Notes, leave, stop_on_signals, take
from django_leasequeue.worker.supervisor import Supervisor
from tests.waiting import PATIENCE, in_thread, wait_for

# A child that ends when its line says so.
CHILD = [sys.executable, "-c", "import os, sys; os.read(int(sys.argv[3]), 1)"]


@contextmanager
def signal_beside_a_wait(signum: int, rescue: Callable[[], None]) -> Iterator[None]:
    """*signum* comes to another thread while this one waits; *rescue* where that isn't met."""
    main = threading.get_ident()

    def waits() -> bool:
        return sys._current_frames()[main].f_code.co_name in {"take", "wait_for", "run"}

    def send() -> None:
        wait_for(waits)
        signal.pthread_kill(threading.get_ident(), signum)

    late = threading.Timer(PATIENCE, rescue)
    late.start()
    sent = in_thread(send)
    try:
        yield
        assert not late.finished.is_set(), "the signal was met by chance only"
    finally:
        late.cancel()
        sent.result(PATIENCE)


@pytest.mark.parametrize(
    ("signals", "stops"),
    [
        ([signal.SIGHUP, signal.SIGHUP], 1),
        ([signal.SIGINT, signal.SIGHUP], 1),
        ([signal.SIGHUP, signal.SIGTERM], 2),
        ([signal.SIGTERM, signal.SIGTERM], 2),
    ],
)
def test_a_terminal_that_closes_asks_for_a_stop_and_never_for_a_second_one(
    no_nohup: None, signals: list[int], stops: int
) -> None:
    """G40: itself and its shell send the signal, each to everybody."""
    told: list[bool] = []

    with stop_on_signals(lambda: told.append(True)):
        for signum in signals:
            signal.raise_signal(signum)

    assert len(told) == stops
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_who_is_to_ignore_the_terminal_goes_on_ignoring_it(no_nohup: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    told: list[bool] = []

    with stop_on_signals(lambda: told.append(True)):
        signal.raise_signal(signal.SIGHUP)

    assert told == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_meets_it(signum: int) -> None:
    """G40"""
    notes = Notes()

    with stop_on_signals(notes.stop), signal_beside_a_wait(signum, notes.look):
        notes.wait_for(lambda: notes.stops > 0, stops=2)

    assert notes.stops == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_waits_meets_it(signum: int) -> None:
    """G40"""
    supervisor = Supervisor(CHILD, 1, grace=30)

    with stop_on_signals(supervisor.stop), signal_beside_a_wait(signum, supervisor.stop):
        assert supervisor.run() == 0

    assert supervisor.stops == 1


def test_a_wait_is_as_long_as_asked_and_no_longer_than_a_signal_may_wait() -> None:
    """G40"""
    asked = []

    class NeverTold(queue.SimpleQueue[bool]):
        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            asked.append(timeout)
            raise queue.Empty

    for seconds in (-1.0, 0.2, 60.0, inf):
        with pytest.raises(queue.Empty):
            take(NeverTold(), seconds)

    assert asked == [0.0, 0.2, 0.5, 0.5]


@pytest.mark.parametrize(("status", "left_with"), [(0, 0), (3, 3), ("an error", 1)])
def test_a_process_leaves_at_once_with_the_status_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, status: object, left_with: int
) -> None:
    def leave_at_once(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(logging, "shutdown", lambda: None)  # it would close pytest's handlers, too
    monkeypatch.setattr(os, "_exit", leave_at_once)

    with pytest.raises(SystemExit) as end:
        leave(status)

    assert end.value.code == left_with
