"""What `make bench` writes; how it measures isn't for a test."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks import report
from benchmarks.__main__ import medians
from benchmarks.measure import Answers
from benchmarks.report import NOTHING

RUN = report.Run(date="2026-01-01", server="18.0", rounds=1)
SIZES = {"one_by_one": 1, "bulk": 1, "pick_ups": 1}
OURS = Answers(
    "django-leasequeue",
    {"Django": "6.0"},
    {"drain1": 20_123.0, "bare1": 1.0, "bare2": 2.0, "computing1": 10.0, "computing2": 19.0},
)
LIMIT = Answers("raw SQL", {}, {"drain1": 40_246.0, "enqueue": 1.234})
AWAY = Answers("celery + redis", problem="not measured: no redis-server here")


def test_the_page_shows_what_was_measured_and_says_what_wasnt() -> None:
    page = report.page([OURS, AWAY, LIMIT], RUN, SIZES)

    assert f"| django-leasequeue | {NOTHING} | {NOTHING} | 20,100 |" in page
    assert f"| ours / raw SQL | {NOTHING} | {NOTHING} | 0.50 |" in page
    assert "1.90 times as many" in page
    assert "celery + redis not measured" in page


def test_the_picture_has_a_bar_for_each_rate() -> None:
    picture = ElementTree.fromstring(report.picture([OURS, AWAY, LIMIT]))  # noqa: S314  our own

    assert len(picture.findall("{*}rect")) == 3


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0123, "0.0123"), (1.5, "1.5"), (360.7, "361"), (17_249, "17,200")]
)
def test_figures_have_three_digits_that_count(value: float, shown: str) -> None:
    assert report.figure(value) == shown


def test_rounds_are_told_by_their_medians() -> None:
    rounds = tuple(Answers("a", {}, {"drain1": rate}) for rate in (1.0, 9.0, 2.0))

    assert medians(rounds).figures == {"drain1": 2.0}
