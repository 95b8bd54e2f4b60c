"""Whatever stands in an address or a form: a page comes back, never a server error."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st

from django_leasequeue import Queue
from django_leasequeue.models import Task
from tests.admin.desk import Desk, MakeDesk, a_dead_letter
from tests.promises.test_junk import MANY

MODELS = ["deadletter", "task", "tasktransition"]
LISTS = [*MODELS, "pause", "batch"]
JUNK = ["a\x00b", "\x00", "x" * 5000, "%s", "'", "-1", "9" * 30, "٣", "1e5", "None", "9" * 19]
PARAMETERS = [
    *(
        "q",
        "in_queue",
        "of_tenant",
        "of_task",
        "error",
        "how",
        "dead",
        "state",
        "kind",
        "p",
        "o",
        "all",
    ),
    *("at__year", "at__month", "at__day", "at__gte", "at__lt", "nonsense", "id__exact", "e"),
    *("queue", "queue__isnull", "visible_at__year", "paused_at__date"),
]


@pytest.mark.parametrize("model", LISTS)
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_list_takes_any_address(
    make_desk: MakeDesk, emails: Queue, model: str, parameter: str
) -> None:
    """G36: once or repeated."""
    desk = make_desk("view_pause", "view_batch")
    a_dead_letter(emails, "a")
    emails.enqueue({}, id="b")

    for value in [*JUNK, *([junk, "1"] for junk in JUNK)]:
        answer = desk.at(model).page(**{parameter: value})
        assert answer.status_code in (200, 302, 400), (parameter, value)


@pytest.mark.parametrize("year", ["-1", "9" * 30])
def test_a_year_that_is_none_has_no_groups_and_moves_nothing(
    desk: Desk, emails: Queue, year: str
) -> None:
    """G36: neither of them reads the list."""
    sent = {"action": "redrive_selected", "_selected_action": a_dead_letter(emails, "a")}
    query = f"?visible_at__year={year}"

    grouped = desk.client.get(desk.url("groups") + query)
    asked = desk.client.post(desk.url("changelist") + query, sent)

    assert (grouped.status_code, asked.status_code) == (302, 302)


@pytest.mark.parametrize("model", LISTS)
@pytest.mark.parametrize("number", JUNK)
def test_a_page_that_is_not_there_leads_to_the_list(
    make_desk: MakeDesk, emails: Queue, model: str, number: Any
) -> None:
    """G36"""
    desk = make_desk("view_pause", "view_batch")
    answer = desk.at(model).client.get(f"{desk.at(model).url('changelist')}{number}/change/")

    assert answer.status_code in (302, 404)


@pytest.mark.parametrize(
    "form",
    [
        *({"_selected_action": value} for value in JUNK),
        *({"reason": value} for value in JUNK),
        *({"until": value} for value in JUNK),
        *({"select_across": value, "until": "9999-12-31 23:59:59"} for value in JUNK),
        {"action": "a\x00b"},
        {"index": "x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["redrive", "cancel"])
def test_a_form_can_not_break_a_move(
    desk: Desk, emails: Queue, verb: str, form: dict[str, Any]
) -> None:
    """G36: either it is asked again, or nothing else than what was chosen moves."""
    letter = a_dead_letter(emails, "a")
    sent = {"action": f"{verb}_selected", "_selected_action": letter, "confirmed": "yes"}

    answer = desk.client.post(desk.url("changelist"), sent | form)

    assert answer.status_code in (200, 302, 400)


FIELDS = ["reason", "until", "select_across", "index"]


@MANY
@given(
    model=st.sampled_from(MODELS),
    query=st.dictionaries(st.sampled_from(PARAMETERS), st.text(max_size=30), max_size=3),
    form=st.dictionaries(st.sampled_from(FIELDS), st.text(max_size=30), max_size=3),
    verb=st.sampled_from(["redrive", "cancel"]),
)
def test_an_address_and_a_form_get_a_page(
    desk: Desk, emails: Queue, model: str, query: dict[str, str], form: dict[str, str], verb: str
) -> None:
    """G36"""
    chosen, other = (a_dead_letter(emails, str(uuid4())) for _ in range(2))
    sent = {"action": f"{verb}_selected", "_selected_action": chosen, "confirmed": "yes"} | form

    shown = desk.at(model).page(**query)
    answered = desk.client.post(desk.url("changelist"), sent)

    assert shown.status_code in (200, 302, 400)
    assert answered.status_code in (200, 302, 400)
    if not form.get("select_across"):
        assert Task.objects.using(emails.using).get(seq=other).state == "dead"
