"""The log's pages: the rows, what narrows them, dates, and each row in full."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from django_leasequeue.admin import bounds
from django_leasequeue.models import TaskTransition
from django_leasequeue.overview.rates import position_at
from tests.admin.desk import Answer, Desk, MakeDesk, a_dead_letter, log_of, poll

DAY = 86_400


def advance(queue: Queue, seconds: float) -> None:
    queue.store.clock.advance(seconds)  # type: ignore[union-attr]


@pytest.fixture
def four_days(emails: Queue) -> None:
    """a: enqueued, leased and retried on the 1st, done on the 2nd; b: enqueued on the 4th."""
    emails.enqueue({"card": "4111"}, id="a", tenant="acme")
    emails.fail(poll(emails, "w1"), ValueError("no\nmx"))
    advance(emails, DAY)
    lease = poll(emails, "w2")
    emails.heartbeat(lease, details={"seen": "4222"})
    emails.complete(lease, result={"paid": "4333"})
    advance(emails, 2 * DAY)
    emails.enqueue({}, id="b")


def kinds(desk: Desk, **query: Any) -> list[str]:
    return [row.kind for row in reversed(desk.rows(**query))]


ALL = ["enqueued", "leased", "retried", "leased", "heartbeat", "acked", "enqueued"]


@pytest.mark.usefixtures("four_days")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ALL),
        ({"kind": "leased"}, ["leased"] * 2),
        ({"kind": "lapsed"}, []),
        ({"in_queue": "emails"}, ALL),
        ({"in_queue": "other"}, []),
        ({"q": "a"}, ALL[:-1]),
        ({"q": " b "}, ["enqueued"]),
        ({"q": "w1"}, ["leased", "retried"]),
        ({"q": "no such"}, []),
        ({"q": "w1", "kind": "retried"}, ["retried"]),
    ],
)
def test_filters_and_search(log: Desk, query: dict[str, str], found: list[str]) -> None:
    assert kinds(log, **query) == found


def test_a_life_finds_its_rows(log: Desk, emails: Queue) -> None:
    mine = emails.enqueue({}, id="a")
    emails.enqueue({}, id="b")
    emails.enqueue({}, id=str(mine.life)[:-1] + "x")

    assert [row.life for row in log.rows(q=str(mine.life))] == [mine.life]


@pytest.mark.usefixtures("four_days")
def test_a_row_tells_which_task_what_and_why_but_no_payload(log: Desk) -> None:
    page = log.page().content.decode()

    for told in (">a<", "acme", "token", "w2", "ValueError: no mx", "2026-01-02 00:00:00"):
        assert told in page
    for secret in ("4111", "4222", "4333"):
        assert secret not in page


@pytest.mark.usefixtures("four_days")
@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize(
    ("date", "found"),
    [
        ((2026,), ALL),
        ((2026, 1), ALL),
        ((2026, 2), []),
        ((2025,), []),
        ((2026, 1, 1), ALL[:3]),
        ((2026, 1, 2), ALL[3:6]),
        ((2026, 1, 3), []),
        ((2026, 1, 4), ALL[6:]),
    ],
)
def test_a_date_shows_its_stretch_of_the_log(
    log: Desk, settings: Any, use_tz: bool, date: tuple[int, ...], found: list[str]
) -> None:
    settings.USE_TZ = use_tz
    query = dict(zip(("at__year", "at__month", "at__day"), date, strict=False))

    assert kinds(log, **query) == found


@pytest.mark.usefixtures("four_days")
def test_a_date_is_one_of_the_zone_that_the_site_shows(log: Desk, settings: Any) -> None:
    settings.TIME_ZONE = "America/New_York"  # the 1st, 00:00 UTC, is still the 31st there

    assert kinds(log, at__year=2025, at__month=12, at__day=31) == ALL[:3]


def choices(answer: Answer) -> list[str]:
    return [choice["title"] for choice in answer.context["cl"].dates()["choices"]]


@pytest.mark.usefixtures("four_days")
def test_the_drill_down_offers_the_days_and_the_way_back(log: Desk, emails: Queue) -> None:
    days = ["January 1", "January 2", "January 3", "January 4"]

    assert choices(log.page()) == days
    assert choices(log.page(at__year=2026, at__month=1, at__day=2)) == ["January 2"]

    advance(emails, 40 * DAY)
    emails.enqueue({}, id="c")

    assert choices(log.page()) == ["January 2026", "February 2026"]
    month = log.page(at__year=2026, at__month=2, kind="enqueued")
    assert choices(month)[-1] == "February 13"
    assert month.context["cl"].dates()["back"]["link"] == "?at__year=2026&kind=enqueued"
    assert choices(log.page(at__year=2026)) == ["January 2026", "February 2026"]


def test_an_empty_log_has_its_page(log: Desk, emails: Queue) -> None:
    assert (log.rows(), choices(log.page())) == ([], [])
    assert log.rows(at__year=2026) == []


@pytest.mark.parametrize("date", ["x", "0", "2026-01"])
def test_a_date_that_is_none_is_answered_as_the_admin_does(
    log: Desk, emails: Queue, date: str
) -> None:
    assert log.page(at__year=date).status_code == 302


def test_a_row_dated_back_does_not_lead_the_search_for_a_date_astray(emails: Queue) -> None:
    """What the clock did is dated when it did it, and stands where it was written down."""
    for id in "abc":
        emails.enqueue({}, id=id, max_attempts=1)
        poll(emails)
    advance(emails, 2 * DAY)
    emails.enqueue({}, id="d")
    emails.store.settle("emails")
    emails.enqueue({}, id="e")
    rows = TaskTransition.objects.using(emails.using)
    first_of_the_third = log_of(emails, kind="enqueued")[3].pk

    assert position_at(rows, datetime(2026, 1, 2, tzinfo=UTC)) == first_of_the_third
    assert position_at(rows, datetime(2025, 1, 1, tzinfo=UTC)) == log_of(emails)[0].pk
    assert position_at(rows, datetime(2027, 1, 1, tzinfo=UTC)) == log_of(emails)[-1].pk + 1


@pytest.mark.usefixtures("four_days")
def test_a_long_log_is_counted_so_far_and_says_so(
    log: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "More than" not in log.page().content.decode()

    monkeypatch.setattr(bounds, "COUNTED_MAX", 5)
    answer = log.page()

    assert answer.context["cl"].result_count == 5
    assert "More than 5: rows are counted" in answer.content.decode()
    assert "5 results" not in answer.content.decode()


@pytest.mark.usefixtures("four_days")
def test_what_a_row_holds_is_told_to_those_who_may_see_it(
    make_desk: MakeDesk, emails: Queue
) -> None:
    rows = log_of(emails)
    hidden, shown = make_desk(name="eve").at("tasktransition"), make_desk("view_payload")
    shown = shown.at("tasktransition")

    for secret, row in (("4111", rows[0]), ("4222", rows[4]), ("4333", rows[5])):
        assert secret in shown.story(row.pk).content.decode()
        page = hidden.story(row.pk).content.decode()
        assert secret not in page
        assert "Hidden: " in page
    failed = hidden.story(rows[2].pk).content.decode()
    assert "ValueError: no" in failed
    assert "Hidden: " not in failed


def test_acts_are_told_with_who_and_why(log: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a")
    emails.redrive(["a"], by="7 bob", reason="mailbox is back")

    page = log.story(log_of(emails)[-1].pk).content.decode()

    assert "7 bob" in page
    assert "mailbox is back" in page


def test_a_story_leads_to_its_rows_and_back(desk: Desk, log: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    emails.redrive(["a"])
    rows = log_of(emails)
    leased, redriven = rows[1].pk, rows[-1].pk

    story = desk.story(letter).content.decode()

    assert f"/tasktransition/?q={rows[0].life}" in story
    assert f"/tasktransition/{leased}/change/" in story
    assert f"/tasktransition/{redriven}/change/" in story
    assert f"/leasequeue/task/{letter}/change/" in log.story(redriven).content.decode()


def test_what_is_no_position_has_no_page(log: Desk, emails: Queue) -> None:
    for wrong in [10**18, 10**30, "x", "1_2", "٣"]:
        answer = log.story(wrong)  # type: ignore[arg-type]
        assert log.told(answer)[-1] == "There is no such row in the log."


def test_many_rows_cost_no_more_queries_than_few(log: Desk, emails: Queue) -> None:
    counts = []
    for ids in (range(2), range(2, 30)):
        emails.enqueue_many({"payload": {}, "id": str(id), "tenant": f"t{id}"} for id in ids)
        with (
            CaptureQueriesContext(connections["default"]) as here,
            CaptureQueriesContext(connections["sqlite"]) as there,
        ):
            log.page()
        counts.append(len(here) + len(there) * (emails.using == "sqlite"))

    assert counts[0] == counts[1] <= 12
