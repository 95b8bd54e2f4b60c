"""``tenants_for`` limits every page, action and count."""

from __future__ import annotations

import pytest

from django_leasequeue import Queue
from django_leasequeue.admin import DeadLetterAdmin
from tests.admin.desk import Desk, a_dead_letter, ids_of, states


@pytest.fixture(autouse=True)
def only_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadLetterAdmin, "tenants_for", lambda self, request: {"acme"})


def test_the_list_its_count_and_its_filters(desk: Desk, emails: Queue) -> None:
    """G46"""
    a_dead_letter(emails, "a", tenant="acme")
    a_dead_letter(emails, "b", tenant="rival")

    answer = desk.page()

    assert ids_of(answer.context["cl"].result_list) == ["a"]
    assert answer.context["cl"].result_count == 1
    assert "rival" not in answer.content.decode()
    assert desk.rows(of_tenant="rival") == []


def test_the_story(desk: Desk, emails: Queue) -> None:
    """G46"""
    mine = a_dead_letter(emails, "a", tenant="acme")
    theirs = a_dead_letter(emails, "b", tenant="rival")

    assert desk.story(mine).status_code == 200
    assert desk.told(desk.story(theirs)) == ["There is no such dead letter."]


def test_redrive_by_number_by_selection_and_from_the_story(desk: Desk, emails: Queue) -> None:
    """G46"""
    mine = a_dead_letter(emails, "a", tenant="acme")
    theirs = a_dead_letter(emails, "b", tenant="rival")

    said = [desk.redrive(theirs), desk.redrive_story(theirs), desk.redrive(mine, across=True)]

    assert said == ["0 redriven."] * 2 + ["1 redriven."]
    assert states(emails, "a", "b") == ["ready", "dead"]
