"""Cancel: the same question, act and words as redrive has, for every held task."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections

from django_leasequeue import LeaseLostError, Queue
from django_leasequeue.admin.verbs import told
from django_leasequeue.batches import begin, go_on
from django_leasequeue.models import Batch, Task
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, log_of, number, poll, states

YEARS = 9 * 365 * 86_400.0


def waiting(queue: Queue, *ids: str) -> list[int]:
    queue.enqueue_many({"payload": {}, "id": id} for id in ids)
    return [number(queue, id) for id in ids]


def test_nothing_moves_before_the_question_is_answered(tasks: Desk, emails: Queue) -> None:
    [task] = waiting(emails, "a")

    page = tasks.ask(task, verb="cancel").content.decode()

    assert "1 task will leave its queue for good" in page
    assert "emails/a" in page
    assert states(emails, "a") == ["ready"]


def test_who_and_why_are_on_both_records(tasks: Desk, emails: Queue) -> None:
    first, second = waiting(emails, "a", "b")

    said = [tasks.cancel(first, reason="customer left"), tasks.cancel_story(second, "so did he")]

    rows = log_of(emails, kind="cancelled")
    entry = LogEntry.objects.order_by("pk").first()
    assert said == ["1 cancelled."] * 2
    assert states(emails, "a", "b") == ["left", "left"]
    assert [row.transition.facts["by"] for row in rows] == [f"ada (user {tasks.user.pk})"] * 2
    assert [row.transition.facts["reason"] for row in rows] == ["customer left", "so did he"]
    assert entry
    batch = Batch.objects.using(emails.using).order_by("pk")[0]
    assert (entry.object_id, entry.change_message) == (str(batch.pk), "customer left")
    assert "Cancelled at" in tasks.story(first).content.decode()


def test_every_held_state_can_be_cancelled(tasks: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="lapsed")
    poll(emails)
    emails.enqueue({}, id="died", max_attempts=1)
    poll(emails)
    a_dead_letter(emails, "dead")
    emails.enqueue({}, id="scheduled", run_after=timedelta(days=3000))
    ids = ["lapsed", "died", "dead", "scheduled"]

    assert tasks.cancel(*(number(emails, id) for id in ids)) == "4 cancelled."
    assert states(emails, *ids) == ["left"] * 4


def test_a_dead_letter_is_discarded_by_the_same_act(desk: Desk, emails: Queue) -> None:
    letters = [a_dead_letter(emails, id) for id in "abc"]

    said = [desk.cancel(letters[0]), desk.cancel_story(letters[1]), desk.cancel(0, across=True)]

    assert said == ["1 cancelled."] * 3
    assert states(emails, "a", "b", "c") == ["left"] * 3


def test_the_question_warns_of_work_in_progress(tasks: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="a", visibility=YEARS, max_lease=YEARS)
    lease = poll(emails)

    page = tasks.ask(number(emails, "a"), verb="cancel").content.decode()

    assert "1 is leased" in page
    assert tasks.cancel(number(emails, "a")) == "1 cancelled."
    with pytest.raises(LeaseLostError, match="cancelled"):
        emails.complete(lease)


def test_without_the_permission_neither_list_nor_story_cancels(
    make_desk: MakeDesk, emails: Queue
) -> None:
    desk = make_desk("redrive_task", "view_payload").at("task")
    [task] = waiting(emails, "a")

    desk.ask(task, verb="cancel", confirmed="yes", until=task)
    by_the_story = desk.client.post(desk.url("cancel", task), {"confirmed": "yes", "until": task})

    assert by_the_story.status_code == 403
    assert "Cancel task…" not in desk.story(task).content.decode()
    assert states(emails, "a") == ["ready"]


def test_a_selection_across_pages_keeps_to_the_filters(tasks: Desk, emails: Queue) -> None:
    for id in "abc":
        emails.enqueue({}, id=id, tenant=f"t{id}")
    emails.enqueue({}, id="d", tenant="tb", run_after=timedelta(days=3000))

    said = tasks.cancel(0, across=True, path=tasks.url("changelist") + "?of_tenant=tb&state=ready")

    assert said == "1 cancelled."
    assert states(emails, "a", "b", "c", "d") == ["ready", "left", "ready", "ready"]


def test_what_was_enqueued_after_the_question_is_not_meant_by_the_answer(
    tasks: Desk, emails: Queue
) -> None:
    waiting(emails, "a")
    until = tasks.ask(0, across=True, verb="cancel").context["form"]["until"].value()
    waiting(emails, "b")

    tasks.ask(0, across=True, verb="cancel", confirmed="yes", until=until)

    assert states(emails, "a", "b") == ["left", "ready"]


def test_a_namesake_that_came_later_is_left_alone(tasks: Desk, emails: Queue) -> None:
    [task] = waiting(emails, "a")
    emails.cancel("a")
    waiting(emails, "a")

    said = tasks.cancel(task)

    assert said == "0 cancelled, 1 skipped: emails/a: it has left the queue"
    assert states(emails, "a") == ["ready"]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True, databases=["default"])
def test_a_task_in_the_middle_of_a_move_is_skipped_as_busy() -> None:
    """The page does not wait for whoever holds the row."""
    queue = Queue("emails")
    waiting(queue, "a", "b")
    batch = begin(Task.objects.using("default"), verb="cancel", by="ada")
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT 1 FROM leasequeue_task WHERE task_id = 'a' FOR UPDATE")
            done = go_on(batch, seconds=10)
    finally:
        other.rollback()
        other.close()

    assert told(done) == "1 cancelled, 1 skipped: emails/a: busy"
    assert states(queue, "a", "b") == ["ready", "left"]
