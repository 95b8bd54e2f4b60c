"""The page of all queues: what is wrong, why, and the button that stops it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.models import Pause, Worker
from django_leasequeue.overview import Verdict
from tests.admin.desk import Answer, Desk, MakeDesk


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk("view_overview", "view_pause", "pause_queue").at("overview")


def panel(answer: Answer, name: str = "emails") -> Any:
    [found] = [panel for panel in answer.context["panels"] if panel.view.name == name]
    return found


def switch(desk: Desk, verb: str, queue: str = "emails", **form: str) -> Answer:
    address = f"{desk.url(verb)}?queue={queue}"
    return desk.client.post(address, form) if form else desk.client.get(address)


def a_worker(queue: Queue, name: str = "w1", *tenants: str) -> None:
    now = Queue("any", using=queue.using).now()
    tasks = [
        {
            **{"queue": "emails", "tenant": tenant, "id": f"of {tenant}", "life": ""},
            **{"path": "shop.send", "attempt": 1, "token": 1, "since": str(now)},
        }
        for tenant in tenants
    ]
    gone = timedelta(seconds=100 if name == "gone" else 0)
    Worker.objects.using(queue.using).create(
        **{"name": name, "host": "h", "pid": 4711, "threads": 1, "queues": '["emails"]'},
        **{"started_at": now, "seen_at": now - gone, "tasks": json.dumps(tasks)},
    )


def test_each_queue_has_its_counts_a_verdict_and_the_reason(desk: Desk, emails: Queue) -> None:
    emails.enqueue({}, tenant="acme")

    answer = desk.page()

    shown = panel(answer)
    assert (shown.view.verdict, shown.view.total.visible) == (Verdict.STUCK, 1)
    text = answer.content.decode()
    assert "1 task waits, no worker is there for this queue." in text
    assert "1 tenant" in text
    assert "in_queue=emails&amp;state=ready" in text


def test_the_worst_comes_first_and_the_idle_last(desk: Desk, emails: Queue) -> None:
    emails.enqueue({})
    done = Queue("a queue", using=emails.using)
    done.enqueue({})
    done.complete(done.claim(worker="w")[0])

    answer = desk.page()

    assert [panel.view.name for panel in answer.context["panels"]] == ["emails", "a queue"]
    assert "urgent" in [panel.view.name for panel in answer.context["idle"]]


def test_plots_are_drawn_and_told(desk: Desk, emails: Queue) -> None:
    queue = Queue("emails", using=emails.using)
    queue.enqueue({})

    arrivals, completions = panel(desk.page()).lines[:2]

    hour, day = arrivals["plots"]
    assert hour["title"] == "Arrivals in the last hour: <0.1 a minute, at most 1"
    assert hour["outline"].startswith("M0 28V28.0H3.0")
    assert hour["outline"].endswith("V0.0H180.0V28Z")
    assert day["most"] == "<0.1"
    assert completions["plots"][0]["outline"] == ""


def test_it_needs_no_script_and_nothing_from_elsewhere(desk: Desk, emails: Queue) -> None:
    emails.enqueue({})

    text = desk.page().content.decode()

    assert 'src="http' not in text


def test_names_are_never_markup(desk: Desk, emails: Queue) -> None:
    """G52"""
    evil = "<script>alert(1)</script>"
    Queue(evil, using=emails.using).enqueue({}, tenant=evil)
    a_worker(emails, evil, evil)

    text = desk.page().content.decode()

    assert evil not in text
    assert "&lt;script&gt;" in text


def test_pausing_asks_first_and_is_on_record_with_who_and_why(desk: Desk, emails: Queue) -> None:
    """G67"""
    emails.enqueue({})

    asked = switch(desk, "pause")
    assert emails.paused() is None
    done = switch(desk, "pause", confirmed="yes", reason="bad deploy")

    assert "1 task is visible" in asked.content.decode()
    told = "<span>emails</span> is paused: nothing is claimed from it any more."
    assert desk.told(done) == [told]
    assert told in desk.page().content.decode()  # with the queue's name as it is
    paused = emails.paused()
    assert paused
    assert (paused.by, paused.reason) == (f"ada (user {desk.user.pk})", "bad deploy")
    assert panel(desk.page()).view.verdict is Verdict.PAUSED
    assert "Resume…" in desk.page().content.decode()


def test_resuming_likewise(desk: Desk, emails: Queue) -> None:
    emails.enqueue({})
    emails.pause()

    done = switch(desk, "resume", confirmed="yes", reason="deploy rolled back")
    again = switch(desk, "resume", confirmed="yes")

    assert desk.told(done)[0] == "<span>emails</span> is resumed."
    assert desk.told(again)[-1] == "<span>emails</span> was not paused any more."
    assert emails.claim(worker="w")
    record = desk.at("pause").page().content.decode()
    assert f"ada (user {desk.user.pk})" in record
    assert "deploy rolled back" in record


@pytest.mark.parametrize("name", ["", "%00", "x" * 101])
def test_a_name_that_is_none_is_a_bad_request(desk: Desk, emails: Queue, name: str) -> None:
    assert switch(desk, "pause", name, confirmed="yes").status_code == 400
    assert not Pause.objects.using(emails.using).exclude(queue="").exists()


def test_who_may_not_pause_sees_no_button_and_is_refused(
    make_desk: MakeDesk, emails: Queue
) -> None:
    """G50"""
    emails.enqueue({})
    desk = make_desk("view_overview").at("overview")

    assert "Pause…" not in desk.page().content.decode()
    assert switch(desk, "pause", confirmed="yes").status_code == 403
    assert make_desk(name="bob").at("overview").page().status_code == 403


def test_tenants_limit_what_is_counted_and_shown(
    desk: Desk, emails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G51: And who sees some tenants only can't stop all of them."""
    for tenant in ("acme", "mallory"):
        emails.enqueue({}, tenant=tenant)
    Queue("mallory's own", using=emails.using).enqueue({}, tenant="mallory")
    a_worker(emails, "w1", "acme", "mallory")
    monkeypatch.setattr(ReadOnlyTaskAdmin, "tenants_for", lambda self, request: {"acme"})

    answer = desk.page()

    assert panel(answer).view.total.visible == 1
    text = answer.content.decode()
    assert "of acme" in text
    assert "mallory" not in text
    emails.pause(by="mallory", reason="mallory's")
    assert not desk.at("pause").rows()
    assert switch(desk, "pause", confirmed="yes").status_code == 403


def test_workers_are_told_with_what_they_do(desk: Desk, emails: Queue) -> None:
    a_worker(emails, "w1", "acme")
    a_worker(emails, "gone")

    text = desk.page().content.decode()

    assert "attempt 1, for" in text
    assert "<strong>gone</strong>" in text


def test_an_empty_site_is_told_how_to_begin(desk: Desk, emails: Queue, settings: Any) -> None:
    settings.TASKS = {}

    text = desk.page().content.decode()

    assert "There is no queue yet" in text
    assert "manage.py leasequeue_worker" in text


def test_there_is_nothing_behind_the_page_to_be_opened_by_number(desk: Desk, emails: Queue) -> None:
    emails.pause(by="ada", reason="of others")
    [pause] = Pause.objects.using(emails.using).exclude(queue="")

    for place in ("change", "history", "delete"):
        assert desk.client.get(f"{desk.url('changelist')}{pause.pk}/{place}/").status_code == 404


def test_the_page_renews_itself_only_when_asked(desk: Desk, emails: Queue) -> None:
    assert "Refresh" not in desk.page()
    assert desk.page(refresh="")["Refresh"] == "10"
