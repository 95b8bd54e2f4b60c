"""B27: one letter that can't be redriven doesn't keep the others, nor show an error page."""

from __future__ import annotations

from django_leasequeue import Queue
from django_leasequeue.models import TaskTransition
from tests.admin.desk import Desk, a_dead_letter, states


def three_letters_one_with_a_live_twin(queue: Queue) -> list[int]:
    letters = [a_dead_letter(queue, id, dedupe_key=f"key-{id}") for id in "abc"]
    queue.enqueue({}, id="twin", dedupe_key="key-b")
    return letters


def test_in_the_admin(desk: Desk, emails: Queue) -> None:
    """G22"""
    letters = three_letters_one_with_a_live_twin(emails)

    said = desk.redrive(*letters, reason="again")

    assert said.startswith("2 redriven, 1 skipped: emails/b: ")
    assert "key-b" in said
    assert "twin" in said
    assert states(emails, "a", "b", "c", "twin") == ["ready", "dead", "ready", "ready"]
    redriven = TaskTransition.objects.using(emails.using).filter(kind="redriven")
    assert {row.transition.facts["by"] for row in redriven} == {f"ada (user {desk.user.pk})"}


def test_by_the_call(emails: Queue) -> None:
    """G22"""
    three_letters_one_with_a_live_twin(emails)

    batch = emails.redrive(["a", "b", "c"], by="7 bob")

    assert (batch.redriven, list(batch.skipped)) == (2, ["b"])
    assert states(emails, "a", "b", "c") == ["ready", "dead", "ready"]
