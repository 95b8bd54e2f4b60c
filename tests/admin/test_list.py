"""The list of dead letters: who is in it, what it says, how it is narrowed."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, ids_of, poll


def test_a_row_says_what_died_and_why(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a", tenant="acme", path="shop.tasks.mail", error=ValueError("no\nmx"))

    page = desk.page().content.decode()

    at = "2026-01-01 00:00:00"
    for told in (
        "emails",
        "shop.tasks.mail",
        "acme",
        "after 1 of 2 attempts",
        "ValueError: no mx",
        at,
    ):
        assert told in page


def test_a_task_without_a_function_is_called_by_its_id(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "report-7")

    assert ">report-7</span></a></th>" in desk.page().content.decode()


def test_a_lease_that_ran_out_on_the_last_attempt_is_a_dead_letter(
    desk: Desk, emails: Queue
) -> None:
    """Nobody has written it down: the clock has done it."""
    emails.enqueue({}, id="a", max_attempts=1)
    poll(emails)

    assert ids_of(desk.rows()) == ["a"]
    assert "worker vanished" in desk.page().content.decode()


def test_ready_scheduled_leased_and_lapsed_tasks_are_not_in_it(desk: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="lapsed")
    poll(emails)
    emails.enqueue(
        {}, id="leased", visibility=86_400 * 3650, max_lease=86_400 * 3650, max_attempts=1
    )
    poll(emails)
    emails.enqueue({}, id="ready")

    assert desk.rows() == []


def test_the_newest_comes_first(desk: Desk, emails: Queue) -> None:
    for id in ("a", "b", "c"):
        a_dead_letter(emails, id)
        emails.store.clock.advance(1)  # type: ignore[union-attr]

    assert ids_of(desk.rows()) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"in_queue": "emails"}, ["c", "b", "a"]),
        ({"in_queue": "other"}, []),
        ({"of_tenant": "acme"}, ["a"]),
        ({"of_tenant": ""}, ["c", "b"]),
        ({"of_task": "shop.tasks.mail"}, ["b"]),
        ({"error": "ValueError: no mx"}, ["a"]),
        ({"error": "gone for good"}, ["b"]),
        ({"error": ""}, ["c"]),
        ({"q": "acme"}, ["a"]),
        ({"q": "tasks.mail"}, ["b"]),
        ({"q": "no mx"}, ["a"]),
    ],
)
def test_filters_and_search(
    desk: Desk, emails: Queue, query: dict[str, str], found: list[str]
) -> None:
    a_dead_letter(emails, "a", tenant="acme", error=ValueError("no mx"))
    a_dead_letter(emails, "b", path="shop.tasks.mail", error="gone for good")
    emails.enqueue({}, id="c", max_attempts=1)
    poll(emails)

    assert sorted(ids_of(desk.rows(**query))) == sorted(found)


def test_a_result_id_finds_its_letter(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a")
    a_dead_letter(emails, "b")
    life = desk.rows()[0].life

    assert [row.life for row in desk.rows(q=str(life))] == [life]


def test_what_isn_t_narrowed_offers_no_way_back(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a")

    whole, narrowed = desk.page(), desk.page(in_queue="emails")

    assert "Show all" not in whole.content.decode()
    assert "Show all" in narrowed.content.decode()
    assert whole.context["title"] == "Dead letters"


def test_many_letters_cost_no_more_queries_than_few(desk: Desk, emails: Queue) -> None:
    counts = []
    for ids in (range(2), range(2, 30)):
        for id in ids:
            a_dead_letter(emails, str(id), tenant=f"t{id}")
        with (
            CaptureQueriesContext(connections["default"]) as here,
            CaptureQueriesContext(connections["sqlite"]) as there,
        ):
            desk.page()
        counts.append(len(here) + len(there) * (emails.using == "sqlite"))

    assert counts[0] == counts[1] <= 14


def test_nothing_can_be_added_changed_or_deleted(make_desk: MakeDesk, emails: Queue) -> None:
    """Not even by a superuser: what operators do to a dead letter is redrive it."""
    desk = make_desk()
    desk.user.is_superuser = True
    desk.user.save()
    letter = a_dead_letter(emails, "a")
    base = f"/admin/leasequeue/deadletter/{letter}"

    assert desk.client.get("/admin/leasequeue/deadletter/add/").status_code == 403
    assert desk.client.post(f"{base}/change/", {"state": "ready"}).status_code == 403
    assert desk.client.post(f"{base}/delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in desk.page().content.decode()


def test_the_pages_are_registered() -> None:
    assert any(model._meta.label == "leasequeue.DeadLetter" for model in admin.site._registry)


def test_who_looks_for_what_has_moved_on_is_led_to_it(desk: Desk, emails: Queue) -> None:
    """Why did order 17 fail, and is it done now? By its id alone, from the list of dead letters."""
    a_dead_letter(emails, "order-17", error=ValueError("out of stock"))
    emails.redrive(["order-17"], by="bob", reason="stock is in")
    emails.complete(poll(emails), result="sent")

    page = desk.page(q="order-17").content.decode()
    links = re.findall(r'href="([^"]*q=order-17)"', page)

    assert "A task that has moved on" in page
    log = next(link for link in links if "tasktransition" in link)
    [row, *_] = desk.client.get(log).context["cl"].result_list
    answer = desk.client.get(desk.at("tasktransition").url("change", row.pk))
    story = desk.client.get(answer.context["task"]).content.decode()
    for told in ("Done at", "ValueError: out of stock", "by bob", "stock is in"):
        assert told in story
