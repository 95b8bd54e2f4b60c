"""B53, the admin's part: no list shows payload values, and hiding them holds on every page."""

from __future__ import annotations

from django_leasequeue import Queue
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, log_of, number, poll

SECRET = "4111-1111"


def a_letter_with_a_secret(queue: Queue) -> int:
    """Dead, redriven, retried, and dead again; its payload and details hold the secret."""
    letter = a_dead_letter(queue, "a", payload={"card": SECRET})
    queue.redrive(["a"])
    queue.fail(poll(queue), "timed out")
    lease = poll(queue)
    queue.heartbeat(lease, details={"card": SECRET})
    queue.fail(lease, "timed out", retryable=False)
    return letter


def test_no_list_no_question_and_no_message_shows_it(desk: Desk, emails: Queue) -> None:
    """G52: Not even to those who may view payloads."""
    letter = a_letter_with_a_secret(emails)

    pages = [desk.page(), desk.page(q="a"), desk.ask(letter)]
    said = desk.redrive(letter)
    pages += [desk.page(), desk.client.get("/admin/")]

    assert not any(SECRET in page.content.decode() for page in pages)
    assert SECRET not in said


def test_a_search_for_it_finds_nothing(desk: Desk, emails: Queue) -> None:
    """G52"""
    a_letter_with_a_secret(emails)

    assert desk.rows(q=SECRET) == []


def test_without_view_payload_it_is_hidden_through_the_whole_story(
    make_desk: MakeDesk, emails: Queue
) -> None:
    """G50"""
    letter = a_letter_with_a_secret(emails)
    desk = make_desk("redrive_task")

    assert SECRET not in desk.story(letter).content.decode()
    emails.redrive(["a"])
    assert SECRET not in desk.story(letter).content.decode()
    emails.complete(poll(emails), result={"card": SECRET})
    assert SECRET not in desk.story(letter).content.decode()


def test_the_tasks_and_the_log_keep_it_too(make_desk: MakeDesk, emails: Queue) -> None:
    """No list shows it to anyone, and no page to those who may not view payloads."""
    emails.enqueue({"card": SECRET}, id="a")
    lease = poll(emails)
    emails.heartbeat(lease, details={"card": SECRET})
    emails.complete(lease, result={"card": SECRET})
    emails.enqueue({"card": SECRET}, id="a")
    task = number(emails, "a")

    allowed = make_desk("cancel_task", "view_payload")
    hidden = make_desk("cancel_task", name="eve")
    pages = [allowed.at(model).page() for model in ("task", "tasktransition")]
    pages += [allowed.at("tasktransition").page(q="a"), hidden.at("task").story(task)]
    pages += [hidden.at("task").ask(task, verb="cancel")]
    pages += [hidden.at("tasktransition").story(row.pk) for row in log_of(emails)]

    assert not any(SECRET in page.content.decode() for page in pages)
    assert allowed.at("tasktransition").rows(q=SECRET) == []
    assert allowed.at("task").rows(q=SECRET) == []
