"""The verdict on a queue, case by case."""

from __future__ import annotations

from typing import Any, Final

import pytest
from django.utils.translation import override

from django_leasequeue.overview.verdicts import Facts, Verdict, verdict
from django_leasequeue.overview.wording import number, span

BUSY: Final[dict[str, Any]] = {"workers": 2, "threads": 4}

CASES = [
    (Facts(), Verdict.HEALTHY, "Nothing waits."),
    (Facts(leased=1, **BUSY), Verdict.HEALTHY, "1 task runs."),
    (Facts(visible=3, oldest=2, **BUSY), Verdict.HEALTHY, "3 tasks wait, the oldest for 2 s."),
    (
        Facts(visible=3, oldest=2),
        Verdict.STUCK,
        "3 tasks wait, no worker is there for this queue.",
    ),
    (
        Facts(visible=5001, told="~5001", oldest=2),
        Verdict.STUCK,
        "~5001 tasks wait, no worker is there for this queue.",
    ),
    (
        Facts(visible=1, oldest=700, **BUSY),
        Verdict.STUCK,
        "1 task waits, nothing has ended for more than ten minutes.",
    ),
    (
        Facts(visible=1, oldest=700, leased=4, **BUSY),
        Verdict.STUCK,
        "1 task waits, every thread has been busy for more than ten minutes.",
    ),
    (
        Facts(failed=3, lapsed=2, **BUSY),
        Verdict.STUCK,
        "Of 5 attempts in the last ten minutes not one succeeded.",
    ),
    (Facts(failed=4, **BUSY), Verdict.HEALTHY, "Nothing waits."),
    (Facts(failed=50, done=1, **BUSY), Verdict.HEALTHY, "Nothing waits."),
    (
        Facts(visible=9, oldest=90, arrived=30, done=20, **BUSY),
        Verdict.BEHIND,
        "9 tasks wait, the oldest for 1 min 30 s; a minute 3.0 arrive, 2.0 are done.",
    ),
    (
        Facts(visible=9, oldest=90, arrived=20, done=30, **BUSY),
        Verdict.CATCHING_UP,
        "9 tasks wait, the oldest for 1 min 30 s; a minute 2.0 arrive, 3.0 are done.",
    ),
    (
        Facts(visible=9, oldest=900, paused_seconds=3700, paused_by="ada", paused_reason="deploy"),
        Verdict.PAUSED,
        "by ada, for 1 h 1 min: deploy",
    ),
    (Facts(paused_seconds=0), Verdict.PAUSED, "by somebody, for 0 s."),
]


@pytest.mark.parametrize(("facts", "expected", "reason"), CASES)
def test_the_verdict_follows_from_the_facts(facts: Facts, expected: Verdict, reason: str) -> None:
    assert verdict(facts) == (expected, reason)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.2, "0.2 s"), (59.6, "1 min"), (61, "1 min 1 s"), (90_000, "1 d 1 h")],
)
def test_a_span_is_told_in_the_two_units_that_matter(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.04, "<0.1"), (0.25, "0.2"), (3, "3"), (12.6, "13")]
)
def test_a_number_is_short(value: float, said: str) -> None:
    assert number(value) == said


def test_decimals_are_those_of_the_readers_language() -> None:
    with override("fr"):
        assert (number(0.25), number(0.04), span(0.2)) == ("0,2", "<0,1", "0,2 s")
