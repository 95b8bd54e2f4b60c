"""B49: ten thousand selected tasks move in one go, with a question and counts."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from django_leasequeue.models import Batch, Task
from tests.admin.desk import Desk

LETTERS = 10_000
TENANTS = 91
STATEMENTS_MAX = LETTERS // 2  # one for each, or more, would outlast a request


def store(queue: Queue, tasks: list[dict[str, Any]]) -> None:
    """With the statistics that autovacuum takes; it can't in the test's own transaction."""
    queue.enqueue_many(tasks)
    with connections[queue.using].cursor() as cursor:
        cursor.execute("ANALYZE leasequeue_task")


def some_letters(queue: Queue, count: int = LETTERS, tenants: int = TENANTS) -> None:
    """The last lease of each has run out: dead by the clock alone."""
    store(
        queue,
        [
            {"payload": {}, "id": str(n), "tenant": f"t{n % tenants}", "max_attempts": 1}
            for n in range(count)
        ],
    )
    while queue.claim(worker="w1", limit=1000):
        pass


def there_is_more(desk: Desk, queue: Queue) -> bool:
    """Go on with the batch as its own page does: what is too much for one request."""
    batch = Batch.objects.using(queue.using).get()
    while not batch.done_at:
        page = desk.client.post(desk.at("batch").url("go_on", batch.pk))
        assert page.status_code == 302
        batch.refresh_from_db()
    return batch.moved == LETTERS


@pytest.mark.parametrize("emails", ["default"], indirect=True, ids=["postgres"])
def test_ten_thousand_across_pages(desk: Desk, emails: Queue) -> None:
    some_letters(emails)

    with CaptureQueriesContext(connections[emails.using]) as sent:
        question = desk.ask(0, across=True).content.decode()
        said = desk.redrive(0, across=True)

    assert len(sent) < STATEMENTS_MAX
    assert question.count('name="_selected_action"') == 1
    assert f"{LETTERS} dead letters will be ready again" in question
    assert said.startswith(f"{LETTERS} redriven. Ready now") or there_is_more(desk, emails)
    assert Task.objects.using(emails.using).filter(state="ready").count() == LETTERS
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("emails", ["default"], indirect=True, ids=["postgres"])
@pytest.mark.parametrize("pages", ["task", "deadletter"])
def test_ten_thousand_are_cancelled_the_same_way(desk: Desk, emails: Queue, pages: str) -> None:
    if pages == "task":
        store(emails, [{"payload": {}, "tenant": f"t{n % TENANTS}"} for n in range(LETTERS)])
    else:
        some_letters(emails)
    desk = desk.at(pages)

    with CaptureQueriesContext(connections[emails.using]) as sent:
        question = desk.ask(0, verb="cancel", across=True).content.decode()
        said = desk.cancel(0, across=True)

    assert len(sent) < STATEMENTS_MAX
    assert question.count('name="_selected_action"') == 1
    assert f"{LETTERS} tasks will leave" in question
    assert said == f"{LETTERS} cancelled." or there_is_more(desk, emails)
    assert Task.objects.using(emails.using).count() == 0
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("emails", ["default"], indirect=True, ids=["postgres"])
def test_more_than_a_thousand_at_a_rate(emails: Queue) -> None:
    """G61"""
    count = 1_200
    some_letters(emails, count, tenants=1)
    queue = Queue("emails", using=emails.using)  # on the database's clock
    asked_at = queue.now()

    batch = queue.redrive_all(rate=100)

    tasks = Task.objects.using(emails.using).filter(state="ready", visible_at__gte=asked_at)
    due = sorted(tasks.values_list("visible_at", flat=True))
    assert batch.redriven == len(due) == count
    gaps = sorted(later - sooner for sooner, later in itertools.pairwise(due))
    assert gaps[count // 2] == timedelta(milliseconds=10)
    assert gaps[0] == timedelta(milliseconds=10)
    assert queue.depth().scheduled > 0, "the last one is due in twelve seconds"
