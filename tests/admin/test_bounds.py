"""Large tables: what no index answers is looked for among the newest, and the page says so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_leasequeue import Queue
from django_leasequeue.admin import bounds
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.testing.clock import START
from tests.admin.desk import Desk, a_dead_letter, ids_of, poll, states

NOTE = "rows only"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows are many."""
    monkeypatch.setattr(bounds, "SEARCHED_MAX", 2)
    monkeypatch.setattr(bounds, "FILTERED_MAX", 2)
    monkeypatch.setattr(bounds, "POSITIONS_MAX", 2)


@pytest.mark.usefixtures("large")
def test_words_are_searched_among_the_newest_tasks_an_id_among_all(
    tasks: Desk, emails: Queue
) -> None:
    for n in range(4):
        emails.enqueue({}, id=f"order-{n}", tenant="acme")

    parts = tasks.page(q="order")
    whole = tasks.page(q="order-0")

    assert ids_of(parts.context["cl"].result_list) == ["order-3", "order-2"]
    assert NOTE in parts.content.decode()
    assert ids_of(whole.context["cl"].result_list) == ["order-0"]
    assert NOTE not in whole.content.decode()


@pytest.mark.usefixtures("large")
def test_another_order_is_that_of_the_newest_tasks(tasks: Desk, emails: Queue) -> None:
    for n in range(4):
        emails.enqueue({}, id=str(n))
        emails.store.clock.advance(1)  # type: ignore[union-attr]

    answer = tasks.page(o="3")  # by when they became ready

    assert ids_of(answer.context["cl"].result_list) == ["2", "3"]
    assert NOTE in answer.content.decode()
    assert ids_of(tasks.rows()) == ["3", "2", "1", "0"]


@pytest.mark.usefixtures("large")
def test_letters_are_searched_among_those_that_died_last(desk: Desk, emails: Queue) -> None:
    for id in "abcd":
        a_dead_letter(emails, id, error=ValueError("out of stock"))
        emails.store.clock.advance(1)  # type: ignore[union-attr]

    assert ids_of(desk.rows(q="of stock")) == ["d", "c"]
    assert ids_of(desk.rows(q="a")) == ["a"], "its id"
    assert ids_of(desk.rows()) == ["d", "c", "b", "a"]


@pytest.mark.usefixtures("large")
def test_what_a_filter_hits_is_listed_of_the_newest_and_moved_of_all(
    desk: Desk, emails: Queue
) -> None:
    for id in "abcd":
        a_dead_letter(emails, id, tenant="acme" if id in "ac" else "rival")
        emails.store.clock.advance(1)  # type: ignore[union-attr]

    listed = desk.page(of_tenant="acme")

    assert ids_of(listed.context["cl"].result_list) == ["c"]
    assert NOTE in listed.content.decode()
    desk.redrive(0, across=True, path=f"{desk.url('changelist')}?of_tenant=acme")
    assert states(emails, *"abcd") == ["ready", "dead", "ready", "dead"]


@pytest.mark.usefixtures("large")
def test_what_runs_is_found_however_old_it_is(
    tasks: Desk, emails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadOnlyTaskAdmin, "now", lambda self, request: START)
    emails.enqueue({}, id="runs")
    poll(emails)
    for id in "abcd":
        emails.enqueue({}, id=id, run_after=timedelta(days=1))

    found = tasks.page(state="leased")
    monkeypatch.setattr("django_leasequeue.admin.filters.DUE_MAX", 2)
    some = tasks.page(state="leased", in_queue="emails")

    assert ids_of(found.context["cl"].result_list) == ["runs"]
    assert NOTE not in found.content.decode()
    assert ids_of(some.context["cl"].result_list) == ["runs"]
    assert "the first 2 of each queue" in some.content.decode()


@pytest.mark.parametrize("most", [0, 9], ids=["many", "few"])
def test_letters_that_nobody_wrote_down_are_among_the_others(
    desk: Desk, tasks: Desk, emails: Queue, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("django_leasequeue.admin.access.UNWRITTEN_MAX", most)
    a_dead_letter(emails, "written down")
    emails.enqueue({}, id="by the clock", max_attempts=1)
    poll(emails)
    emails.enqueue({}, id="waits")

    assert set(ids_of(desk.rows())) == {"written down", "by the clock"}
    assert ids_of(tasks.rows()) == ["waits"]


@pytest.mark.usefixtures("large")
def test_the_log_is_filtered_near_its_end_and_asked_for_a_life_in_full(
    log: Desk, emails: Queue
) -> None:
    life = emails.enqueue({}, id="a").life
    for id in "bcd":
        emails.enqueue({}, id=id)

    of_a_kind = log.page(kind="enqueued")

    assert [row.known_id for row in of_a_kind.context["cl"].result_list] == ["d", "c"]
    assert NOTE in of_a_kind.content.decode()
    for term in (str(life), "a"):
        assert [row.known_id for row in log.rows(q=term)] == ["a"]
    assert len(log.rows()) == 4


def test_small_tables_are_looked_through_in_full(tasks: Desk, log: Desk, emails: Queue) -> None:
    for n in range(4):
        emails.enqueue({}, id=f"order-{n}")

    for page in (tasks.page(q="order"), tasks.page(o="3"), log.page(kind="enqueued")):
        assert len(page.context["cl"].result_list) == 4
        assert NOTE not in page.content.decode()
