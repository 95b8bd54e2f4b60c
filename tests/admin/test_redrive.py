"""Redrive: the question, the act, the words after it, and the records."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission

from django_leasequeue import Queue
from django_leasequeue.models import Batch, TaskTransition
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, number, poll, states


def test_nothing_moves_before_the_question_is_answered(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")

    page = desk.ask(letter).content.decode()

    assert "1 dead letter will be ready again" in page
    assert "emails/a" in page
    assert states(emails, "a") == ["dead"]


def test_the_chosen_letters_are_ready_again(desk: Desk, emails: Queue) -> None:
    letters = [a_dead_letter(emails, id, tenant=f"t{id}") for id in "abc"]

    said = desk.redrive(*letters[:2])

    assert said == "2 redriven. Ready now, for the next worker of emails."
    assert states(emails, "a", "b", "c") == ["ready", "ready", "dead"]


def test_who_and_why_are_on_both_records(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")

    desk.redrive(letter, reason="mailbox is back")

    row = TaskTransition.objects.using(emails.using).get(kind="redriven")
    entry = LogEntry.objects.get()
    by = f"ada (user {desk.user.pk})"
    assert (row.transition.facts["by"], row.transition.facts["reason"]) == (by, "mailbox is back")
    batch = Batch.objects.using(emails.using).get()
    assert (batch.by, batch.reason, batch.queues) == (by, "mailbox is back", "emails")
    assert (entry.user, entry.object_id) == (desk.user, str(batch.pk))
    assert entry.change_message == "mailbox is back"


def test_list_and_story_redrive_alike(desk: Desk, emails: Queue) -> None:
    first, second = a_dead_letter(emails, "a"), a_dead_letter(emails, "b")

    assert (
        desk.redrive(first)
        == desk.redrive_story(second)
        == "1 redriven. Ready now, for the next worker of emails."
    )
    assert states(emails, "a", "b") == ["ready", "ready"]
    assert LogEntry.objects.count() == 2


def test_without_the_permission_neither_list_nor_story_redrives(
    make_desk: MakeDesk, emails: Queue
) -> None:
    """G50"""
    desk = make_desk("view_payload")
    letter = a_dead_letter(emails, "a")

    desk.ask(letter, confirmed="yes", until="2030-01-01")
    by_the_story = desk.client.post(f"/admin/leasequeue/deadletter/{letter}/redrive/")

    assert by_the_story.status_code == 403
    assert "Redrive…" not in desk.story(letter).content.decode()
    assert states(emails, "a") == ["dead"]


def test_one_who_may_redrive_but_not_see_dead_letters_can_do_neither(
    make_desk: MakeDesk, emails: Queue
) -> None:
    """G50"""
    desk = make_desk("redrive_task")
    letter = a_dead_letter(emails, "a")
    desk.user.user_permissions.remove(*Permission.objects.filter(codename="view_deadletter"))

    page, story = desk.page(), desk.story(letter)
    done = desk.client.post(
        f"/admin/leasequeue/deadletter/{letter}/redrive/",
        {"confirmed": "yes", "until": "2030-01-01"},
    )

    assert [answer.status_code for answer in (page, story, done)] == [403] * 3
    assert states(emails, "a") == ["dead"]


def test_a_question_about_what_is_dead_no_more_says_so(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    emails.redrive(["a"])

    assert "is a dead letter any more" in desk.ask(letter).content.decode()


def test_a_selection_across_pages_keeps_to_the_filters(desk: Desk, emails: Queue) -> None:
    for id in "abc":
        a_dead_letter(emails, id, tenant=f"t{id}")
    path = "/admin/leasequeue/deadletter/?of_tenant=tb"

    said = desk.redrive(0, across=True, path=path)

    assert said == "1 redriven. Ready now, for the next worker of emails."
    assert states(emails, "a", "b", "c") == ["dead", "ready", "dead"]


def test_who_died_after_the_question_is_not_meant_by_the_answer(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a")
    emails.store.clock.advance(60)  # type: ignore[union-attr]
    a_dead_letter(emails, "b")

    desk.ask(0, across=True, confirmed="yes", until="2026-01-01T00:00:30+00:00")

    assert states(emails, "a", "b") == ["ready", "dead"]


def test_a_reason_too_long_is_asked_for_again(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")

    answer = desk.ask(letter, confirmed="yes", until="2030-01-01", reason="x" * 501)

    assert "at most 500 characters" in answer.content.decode()
    assert states(emails, "a") == ["dead"]


def test_a_namesake_that_came_later_is_left_alone(desk: Desk, emails: Queue) -> None:
    """The page showed another life; the id is free again once its task has left."""
    letter = a_dead_letter(emails, "a")
    emails.cancel("a")
    namesake = a_dead_letter(emails, "a")

    said = desk.redrive(letter)

    assert said == "0 redriven, 1 skipped: emails/a: it has left the queue"
    assert (states(emails, "a"), number(emails, "a")) == (["dead"], namesake)


def test_many_reasons_are_cut_short(desk: Desk, emails: Queue) -> None:
    letters = [a_dead_letter(emails, f"{n}") for n in range(12)]
    emails.redrive([f"{n}" for n in range(12)])

    said = desk.redrive(*letters)

    assert said.startswith("0 redriven, 12 skipped: emails/")
    assert said.endswith("; and 2 more")


def test_letters_of_a_lease_that_ran_out_are_redriven_too(desk: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="a", max_attempts=1)
    poll(emails)

    assert (
        desk.redrive(number(emails, "a")) == "1 redriven. Ready now, for the next worker of emails."
    )
    assert states(emails, "a") == ["ready"]
