"""The list of tasks that wait or run, as the clock has them, and the page of each."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, ids_of, number, poll, states

YEARS = 9 * 365 * 86_400.0


@pytest.fixture
def one_of_each(emails: Queue) -> None:
    """Ready by the clock alone, leased, scheduled, ready, dead by the clock alone, dead."""
    emails.enqueue({}, id="lapsed", tenant="acme")
    poll(emails, "worker-1")
    emails.enqueue({}, id="leased", path="shop.tasks.mail", visibility=YEARS, max_lease=YEARS)
    poll(emails, "worker-2")
    emails.enqueue({}, id="died", max_attempts=1)
    poll(emails, "worker-3")
    a_dead_letter(emails, "dead")
    emails.enqueue({}, id="scheduled", run_after=timedelta(days=3000))
    emails.enqueue({}, id="ready", priority=7)


@pytest.mark.usefixtures("one_of_each")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["ready", "scheduled", "leased", "lapsed"]),
        ({"state": "ready"}, ["ready", "lapsed"]),
        ({"state": "scheduled"}, ["scheduled"]),
        ({"state": "leased"}, ["leased"]),
        ({"state": "dead"}, []),
        ({"in_queue": "other"}, []),
        ({"of_tenant": "acme"}, ["lapsed"]),
        ({"of_task": "shop.tasks.mail"}, ["leased"]),
        ({"q": "sched"}, ["scheduled"]),
        ({"q": "worker-2"}, ["leased"]),
    ],
)
def test_states_filters_and_search(tasks: Desk, query: dict[str, str], found: list[str]) -> None:
    """What the clock has done counts, though nobody has written it down."""
    assert ids_of(tasks.rows(**query)) == found


@pytest.mark.usefixtures("one_of_each")
def test_a_row_says_where_the_task_stands_since_when_and_who_has_it(tasks: Desk) -> None:
    page = tasks.page().content.decode()

    assert "since 2026-01-01 00:00:30" in page  # lapsed at its deadline
    assert "until 2034-" in page
    assert "due 2034-" in page
    assert "worker-2" in page
    assert page.count("priority 7") == page.count("priority ") == 1
    assert "worker-1" not in page  # who had it once is history


@pytest.mark.usefixtures("one_of_each")
def test_the_dead_ones_are_a_link_away(tasks: Desk, emails: Queue) -> None:
    dead = number(emails, "died")

    page = tasks.page().content.decode()
    assert 'href="/admin/leasequeue/deadletter/"' in page
    assert "ready, scheduled or leased</a>" in page  # not "All"
    assert f"/leasequeue/deadletter/{dead}/change/" in tasks.story(dead).content.decode()
    assert f"/leasequeue/task/{dead}/" not in tasks.at("deadletter").story(dead).content.decode()


def test_the_letter_of_a_redriven_task_leads_to_the_task(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    emails.redrive(["a"])

    assert f"/leasequeue/task/{letter}/change/" in desk.story(letter).content.decode()


def test_a_page_links_only_where_the_user_may_look(make_desk: MakeDesk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    desk = make_desk().at("task")
    desk.user.user_permissions.set(Permission.objects.filter(codename="view_task"))

    page = desk.page().content.decode() + desk.story(letter).content.decode()

    assert "/leasequeue/deadletter/" not in page
    assert "/leasequeue/tasktransition/" not in page
    assert "Cancel task" not in page


def test_an_id_that_repeats_the_life_is_shown_short(tasks: Desk, emails: Queue) -> None:
    id = emails.enqueue({}, path="shop.tasks.mail").id

    page = tasks.page().content.decode()

    assert f"…{id[-8:]}<" in page
    assert f">{id}<" not in page


@pytest.mark.usefixtures("one_of_each")
@pytest.mark.parametrize("model", ["task", "deadletter"])
def test_every_column_sorts_both_ways(desk: Desk, model: str) -> None:
    desk = desk.at(model)
    rows = set(ids_of(desk.rows()))

    for column in range(1, 8):
        assert set(ids_of(desk.rows(o=column))) == rows
        assert set(ids_of(desk.rows(o=-column))) == rows


def test_a_life_finds_its_task_and_so_does_an_id_that_looks_like_one(
    tasks: Desk, emails: Queue
) -> None:
    life = emails.enqueue({}, id="a").life
    emails.enqueue({}, id=str(life))
    emails.enqueue({}, id="b")

    assert sorted(ids_of(tasks.rows(q=f" {life} "))) == sorted(["a", str(life)])


def test_many_tasks_cost_no_more_queries_than_few(tasks: Desk, emails: Queue) -> None:
    counts = []
    for ids in (range(2), range(2, 30)):
        emails.enqueue_many({"payload": {}, "id": str(id), "tenant": f"t{id}"} for id in ids)
        with (
            CaptureQueriesContext(connections["default"]) as here,
            CaptureQueriesContext(connections["sqlite"]) as there,
        ):
            tasks.page()
        counts.append(len(here) + len(there) * (emails.using == "sqlite"))

    assert counts[0] == counts[1] <= 12


def test_nothing_can_be_added_changed_or_deleted(make_desk: MakeDesk, emails: Queue) -> None:
    """Not even by a superuser."""
    desk = make_desk()
    desk.user.is_superuser = True
    desk.user.save()
    emails.enqueue({}, id="a")

    for model in ("task", "tasktransition"):
        base = f"/admin/leasequeue/{model}/{number(emails, 'a')}"
        assert desk.client.get(f"/admin/leasequeue/{model}/add/").status_code == 403
        assert desk.client.post(f"{base}/change/", {"state": "dead"}).status_code == 403
        assert desk.client.post(f"{base}/delete/", {"post": "yes"}).status_code == 403
        assert "delete_selected" not in desk.at(model).page().content.decode()
    assert states(emails, "a") == ["ready"]
