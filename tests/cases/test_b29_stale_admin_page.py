"""B29: an admin page loaded before the state changed; list and story agree with the call."""

from __future__ import annotations

import pytest

from django_leasequeue import Queue
from django_leasequeue.models import Task, TaskTransition
from tests.admin.desk import Desk, a_dead_letter, number, poll, states

YEARS = 9 * 365 * 86_400.0


def make_ready(queue: Queue) -> None:
    queue.redrive(["a"])


def make_leased(queue: Queue) -> None:
    queue.redrive(["a"])
    poll(queue)


def make_scheduled(queue: Queue) -> None:
    queue.redrive(["a"])
    queue.fail(poll(queue), "later", retry_after=300 * 86_400)


def make_acked(queue: Queue) -> None:
    queue.redrive(["a"])
    queue.complete(poll(queue))


def make_cancelled(queue: Queue) -> None:
    queue.cancel("a")


@pytest.mark.parametrize(
    "meanwhile", [make_ready, make_leased, make_scheduled, make_acked, make_cancelled]
)
def test_a_letter_that_is_none_any_more_is_skipped_with_the_reason(
    desk: Desk, emails: Queue, meanwhile: object
) -> None:
    letter = a_dead_letter(emails, "a", visibility=YEARS, max_lease=YEARS)
    meanwhile(emails)  # type: ignore[operator]
    rows, held = log_rows(emails), projection(emails)

    by_list, by_story = desk.redrive(letter), desk.redrive_story(letter)

    assert by_list == by_story
    assert by_list.startswith("0 redriven, 1 skipped: emails/a: ")
    assert (log_rows(emails), projection(emails)) == (rows, held)


def test_the_others_of_the_selection_move(desk: Desk, emails: Queue) -> None:
    letters = [a_dead_letter(emails, id) for id in "abc"]
    emails.redrive(["a"])
    emails.cancel("b")

    said = desk.redrive(*letters, *letters)

    assert said.startswith("1 redriven, 2 skipped: ")
    assert states(emails, "a", "b", "c") == ["ready", "left", "ready"]


def test_a_number_that_never_was_moves_nothing(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")

    assert desk.redrive(letter + 1_000_000) == "0 redriven."


@pytest.mark.parametrize("left_by", ["acked", "cancelled", "redriven and cancelled"])
def test_a_task_that_has_left_is_not_cancelled_again(
    desk: Desk, tasks: Desk, emails: Queue, left_by: str
) -> None:
    task = a_dead_letter(emails, "a") if "redriven" in left_by else enqueued(emails, "a")
    emails.redrive(["a"])
    if left_by == "acked":
        emails.complete(poll(emails))
    else:
        emails.cancel("a")
    rows = log_rows(emails)

    said = {pages.cancel(task) for pages in (tasks, desk)}
    said |= {pages.cancel_story(task) for pages in (tasks, desk)}

    assert said == {"0 cancelled, 1 skipped: emails/a: it has left the queue"}
    assert log_rows(emails) == rows


def test_a_task_that_moved_on_but_is_held_is_cancelled(tasks: Desk, emails: Queue) -> None:
    """From ready to leased to dead: the page is old, the act is meant."""
    task = enqueued(emails, "a")
    asked = tasks.ask(task, verb="cancel")
    emails.fail(poll(emails), "no", retryable=False)

    until = asked.context["form"]["until"].value()
    tasks.ask(task, verb="cancel", confirmed="yes", until=until)

    assert states(emails, "a") == ["left"]


def enqueued(queue: Queue, id: str) -> int:
    queue.enqueue({}, id=id)
    return number(queue, id)


def log_rows(queue: Queue) -> int:
    return TaskTransition.objects.using(queue.using).count()


def projection(queue: Queue) -> list[object]:
    return list(Task.objects.using(queue.using).values_list())
