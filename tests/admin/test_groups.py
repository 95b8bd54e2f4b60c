"""Dead letters by error: counted, with their trend, and redriven together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import F
from django.db.models.query import QuerySet

from django_leasequeue import Queue
from django_leasequeue.models import Task
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, ids_of, poll, states


def fail(queue: Queue, id: str, error: str, **how: Any) -> None:
    queue.enqueue({}, id=id, **how)
    queue.fail(poll(queue), error, retryable=False)


def groups(desk: Desk, **query: str) -> list[tuple[str, str, int]]:
    answer = desk.client.get(desk.url("groups"), query)
    return [
        (group["function"], group["error"], group["count"]) for group in answer.context["groups"]
    ]


def test_letters_of_one_task_and_one_kind_of_error_are_counted(desk: Desk, emails: Queue) -> None:
    for n in range(3):
        fail(emails, f"a{n}", f"no order {n} of 'customer {n}'", path="shop.mail")
    fail(emails, "b", "no order 7 of 'ada'", path="shop.bill")
    emails.enqueue({}, id="lost", path="shop.mail", max_attempts=1)
    poll(emails)

    found = groups(desk)

    assert found[0] == ("mail", "no order # of '…'", 3)
    assert sorted(found[1:]) == [
        ("bill", "no order # of '…'", 1),
        ("mail", "worker vanished", 1),
    ]


def test_a_group_leads_to_its_letters_and_no_others(desk: Desk, emails: Queue) -> None:
    fail(emails, "a", "no order 1", path="shop.mail")
    fail(emails, "b", "no order 2", path="shop.bill")
    emails.enqueue({}, id="lost", path="shop.mail", max_attempts=1)
    poll(emails)

    mail = desk.rows(of_task="shop.mail", error="no order #")
    vanished = desk.rows(of_task="shop.mail", error="")

    assert (ids_of(mail), ids_of(vanished)) == (["a"], ["lost"])


def test_the_lists_filters_count_here_too(desk: Desk, emails: Queue) -> None:
    fail(emails, "a", "no", tenant="x")
    fail(emails, "b", "no", tenant="y")

    assert groups(desk, of_tenant="x") == [("", "no", 1)]
    assert groups(desk, of_tenant="z", q="a") == []


def test_a_group_is_redriven_as_a_whole(desk: Desk, emails: Queue) -> None:
    for n in range(3):
        fail(emails, f"a{n}", f"no order {n}", path="shop.mail")
    fail(emails, "b", "else", path="shop.mail")
    page = desk.client.get(desk.url("groups"))
    group = page.context["groups"][0]

    path = f"{desk.url('changelist')}{group['query']}"
    said = desk.redrive(0, across=True, path=path)

    assert said.startswith("3 redriven")
    assert f'formaction="{path}"'.replace("&", "&amp;") in page.content.decode()
    assert states(emails, "b") == ["dead"]


def test_the_trend_tells_when_they_died(desk: Desk, emails: Queue) -> None:
    """In stretches of two hours, the newest last; what is older than a day isn't in it."""
    now = Queue("emails", using=emails.using).now()
    for n, hours in enumerate((0.5, 1, 3, 23.5, 30)):
        fail(emails, f"a{n}", "no")
        rows: QuerySet[Task] = QuerySet(Task, using=emails.using).filter(task_id=f"a{n}")
        rows.update(visible_at=now - timedelta(hours=hours))

    [group] = desk.client.get(desk.url("groups")).context["groups"]

    assert (group["count"], group["trend"]) == (5, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2])


def test_only_ever_lost_and_failed_and_how_long_ago(desk: Desk, emails: Queue) -> None:
    fail(emails, "failed", "no")
    emails.enqueue({}, id="lost", max_attempts=1)
    poll(emails)
    tasks: QuerySet[Task] = QuerySet(Task, using=emails.using)
    tasks.filter(task_id="lost").update(visible_at=F("visible_at") + timedelta(0))

    assert ids_of(desk.rows(how="lost")) == ["lost"]
    assert ids_of(desk.rows(how="failed")) == ["failed"]
    assert sorted(ids_of(desk.rows(dead="older"))) == ["failed", "lost"], "the clock of the queue"
    assert ids_of(desk.rows(dead="day")) == []
    assert len(desk.rows(dead="what", how="ever")) == 2


def test_without_the_right_there_are_no_buttons(make_desk: MakeDesk, emails: Queue) -> None:
    """G50"""
    a_dead_letter(emails, "a")

    page = make_desk(name="bob").client.get("/admin/leasequeue/deadletter/groups/").content.decode()

    assert "Dead letters by error" in page
    assert "Redrive…" not in page
