"""What is said while the database is away, and how long is waited; on a clock of the test's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from django_leasequeue.worker import outage
from django_leasequeue.worker.outage import Outage, pause


@pytest.fixture
def go_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let it be that many seconds later than at first."""

    def go(seconds: float) -> None:
        monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=lambda: 1000.0 + seconds))

    go(0)
    return go


def test_it_is_told_once_a_second_and_at_the_end(
    go_to: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    """G42"""
    caplog.set_level(logging.INFO, logger="django_leasequeue")
    away = Outage()
    away.over()
    for seconds in (0, 0.5, 0.99, 1, 1.5, 2.5):
        go_to(seconds)
        away.met(OSError("no\n  route"))
    go_to(4)
    away.over()
    away.over()

    assert [record.getMessage() for record in caplog.records] == [
        *["outage: no route; trying again"] * 3,
        "the database is back after 4.0s",
    ]
    assert away.since is None


def test_the_pause_doubles_up_to_its_bound() -> None:
    """G42"""
    assert [pause(failures, 1.5) for failures in (0, 1, 2, 3, 4, 5000)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.5,
        1.5,
    ]
