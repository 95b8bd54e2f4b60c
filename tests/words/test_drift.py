"""Where a claim may look for a task, by the columns that say so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from django_leasequeue.drift import lanes
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import State, born
from tests.builders import a_beginning

NOW = FakeClock().now()


@pytest.mark.parametrize(
    ("state", "seconds", "right"),
    [
        (State.READY, 0, {"now", "later"}),  # come due, and perhaps not written down yet
        (State.READY, 1, {"later"}),
        (State.LEASED, 0, {"later"}),
        (State.LEASED, 1, {"later"}),
        (State.DEAD, 0, {None}),
    ],
)
def test_a_lane_follows_from_state_and_time(
    state: State, seconds: int, right: set[str | None]
) -> None:
    task = replace(born(a_beginning(NOW)), state=state, visible_at=NOW + timedelta(seconds=seconds))

    assert lanes(task, NOW) == right
