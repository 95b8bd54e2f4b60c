"""``tenants_for`` limits every page, action and count."""

from __future__ import annotations

import pytest

from django_leasequeue import Queue
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from tests.admin.desk import Desk, a_dead_letter, ids_of, log_of, number, states


@pytest.fixture(autouse=True)
def only_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadOnlyTaskAdmin, "tenants_for", lambda self, request: {"acme"})


def test_the_list_its_count_and_its_filters(desk: Desk, emails: Queue) -> None:
    """G51"""
    a_dead_letter(emails, "a", tenant="acme")
    a_dead_letter(emails, "b", tenant="rival")

    answer = desk.page()

    assert ids_of(answer.context["cl"].result_list) == ["a"]
    assert answer.context["cl"].result_count == 1
    assert "rival" not in answer.content.decode()
    assert desk.rows(of_tenant="rival") == []


def test_the_story(desk: Desk, emails: Queue) -> None:
    """G51"""
    mine = a_dead_letter(emails, "a", tenant="acme")
    theirs = a_dead_letter(emails, "b", tenant="rival")

    assert desk.story(mine).status_code == 200
    assert desk.told(desk.story(theirs)) == ["There is no such dead letter."]


def test_redrive_by_number_by_selection_and_from_the_story(desk: Desk, emails: Queue) -> None:
    """G51"""
    mine = a_dead_letter(emails, "a", tenant="acme")
    theirs = a_dead_letter(emails, "b", tenant="rival")

    said = [desk.redrive(theirs), desk.redrive_story(theirs), desk.redrive(mine, across=True)]

    assert said == ["0 redriven."] * 2 + ["1 redriven. Ready now, for the next worker of emails."]
    assert states(emails, "a", "b") == ["ready", "dead"]


def two_tasks(queue: Queue) -> tuple[int, int]:
    queue.enqueue({}, id="a", tenant="acme", path="shop.mine")
    queue.enqueue({}, id="b", tenant="rival", path="rival.theirs")
    return number(queue, "a"), number(queue, "b")


def test_the_tasks(tasks: Desk, emails: Queue) -> None:
    mine, theirs = two_tasks(emails)

    answer = tasks.page()

    assert ids_of(answer.context["cl"].result_list) == ["a"]
    assert answer.context["cl"].result_count == 1
    assert "rival" not in answer.content.decode()
    assert tasks.story(mine).status_code == 200
    assert tasks.told(tasks.story(theirs)) == ["There is no such task."]
    assert "rival" not in tasks.ask(mine, theirs, verb="cancel").content.decode()


def test_cancel_by_number_by_selection_and_from_the_story(tasks: Desk, emails: Queue) -> None:
    mine, theirs = two_tasks(emails)

    said = [tasks.cancel(theirs), tasks.cancel_story(theirs), tasks.cancel(mine, across=True)]

    assert said == ["0 cancelled."] * 2 + ["1 cancelled."]
    assert states(emails, "a", "b") == ["left", "ready"]


def test_the_log(log: Desk, emails: Queue) -> None:
    two_tasks(emails)
    Queue("their-queue", using=emails.using).enqueue({}, id="c", tenant="rival")
    mine, theirs, _ = log_of(emails)

    for query in ({}, {"at__year": 2026}, {"q": "a"}):
        answer = log.page(**query)
        assert [row.pk for row in answer.context["cl"].result_list] == [mine.pk]
        assert "rival" not in answer.content.decode()
        assert "their-queue" not in answer.content.decode()
    for term in ("b", str(theirs.life)):
        assert log.rows(q=term) == []
    assert log.story(mine.pk).status_code == 200
    assert log.told(log.story(theirs.pk)) == ["There is no such row in the log."]
