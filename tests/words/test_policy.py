"""Limits and delays: what binds a task, and how long it waits."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.policy import (
    RATE_MAX,
    RATE_MIN,
    RETRY_AFTER_MAX,
    QueuePolicy,
    clamped_retry_after,
    gap_of,
)


def test_the_delay_grows_by_the_factor_up_to_the_cap() -> None:
    policy = QueuePolicy(backoff_base=4, backoff_factor=2, backoff_cap=60)

    assert [policy.delay(attempt) for attempt in range(1, 7)] == [4, 8, 16, 32, 60, 60]


def test_a_slow_growth_goes_on_as_long_as_it_takes_to_reach_the_cap() -> None:
    policy = QueuePolicy(backoff_base=5, backoff_factor=1.01, backoff_cap=3600)

    assert policy.delay(500) == pytest.approx(5 * 1.01**499)
    assert policy.delay(2**31 - 1) == 3600


def test_a_backoff_of_nothing_stays_nothing() -> None:
    assert QueuePolicy(backoff_base=0, backoff_factor=10**6).delay(1000) == 0


@given(
    attempt=st.integers(1, 2**31 - 1),
    base=st.floats(0, 1e8),
    factor=st.floats(1, 1e8),
    cap=st.floats(0, 1e8),
    jitter=st.floats(0, 1),
)
def test_no_attempt_waits_longer_than_the_cap_nor_less_than_nothing(
    attempt: int, base: float, factor: float, cap: float, jitter: float
) -> None:
    policy = QueuePolicy(backoff_base=base, backoff_factor=factor, backoff_cap=cap, jitter=jitter)

    assert 0 <= policy.delay(attempt) <= cap


def test_jitter_shortens_by_its_share_at_most() -> None:
    policy = QueuePolicy(backoff_base=100, jitter=0.25)

    delays = {policy.delay(1) for _ in range(200)}

    assert len(delays) > 1
    assert min(delays) >= 75
    assert max(delays) <= 100


def test_a_task_s_own_limits_come_first_then_the_queue_s_then_the_default() -> None:
    policy = QueuePolicy(visibility=40, max_attempts=2)

    limits = policy.limits(max_attempts=9)

    assert (limits.max_attempts, limits.visibility) == (9, timedelta(seconds=40))


@pytest.mark.parametrize(("visibility", "longest"), [(30, 3600), (3600, 3600), (7200, 7200)])
def test_the_longest_lease_is_an_hour_or_one_visibility(visibility: float, longest: float) -> None:
    assert QueuePolicy().limits(visibility=visibility).max_lease == timedelta(seconds=longest)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2**31}, "max_attempts"),
        ({"max_attempts": 1.0}, "max_attempts"),
        ({"visibility": 0}, "visibility must be from 1e-06"),
        ({"visibility": -1}, "visibility"),
        ({"visibility": math.nan}, "visibility"),
        ({"visibility": math.inf}, "visibility"),
        ({"visibility": "30"}, "visibility"),
        ({"visibility": 1e-7}, "visibility"),
        ({"visibility": 40, "max_lease": 39.9}, "max_lease must not be smaller than visibility"),
        ({"max_lease": 0}, "max_lease"),
    ],
)
def test_a_limit_out_of_bounds_is_named_with_its_bound(
    limits: dict[str, float], named: str
) -> None:
    """For one task and for a queue alike."""
    with pytest.raises(InvalidTaskError, match=named):
        QueuePolicy().limits(**limits)  # type: ignore[arg-type]
    with pytest.raises(InvalidTaskError, match=named):
        QueuePolicy(**limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"backoff_base": -1},
        {"backoff_factor": 0.5},
        {"backoff_cap": math.inf},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"on_fatal": "ignore"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidTaskError, match=next(iter(bad))):
        QueuePolicy(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        (-5, 0),
        (math.nan, 0),
        ("soon", 0),
        (math.inf, RETRY_AFTER_MAX),
        (-math.inf, 0),
        (10**400, RETRY_AFTER_MAX),
        (1.5, 1.5),
    ],
    ids=["negative", "nan", "text", "infinite", "minus infinite", "huge", "in bounds"],
)
def test_a_handler_s_own_wait_is_brought_into_bounds(asked: object, waits: float) -> None:
    """A failure is always recorded, whatever the handler asks for."""
    assert clamped_retry_after(asked) == waits


def test_the_slowest_and_the_fastest_rate_are_rates() -> None:
    for rate in (RATE_MIN, RATE_MAX):
        assert gap_of(rate) == timedelta(seconds=1 / rate)
