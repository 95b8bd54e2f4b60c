"""The page of all queues renews itself in place, while somebody looks at it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_leasequeue import Queue, registry
from django_leasequeue.registry import WorkerFacts
from django_leasequeue.testing import FakeClock

from .conftest import LogIn, Look

pytestmark = pytest.mark.django_db(transaction=True)
OVERVIEW = "/admin/leasequeue/overview/"
MAY = ("view_overview", "pause_queue")
SHOWN = "[aria-labelledby=queue-mail] .counts a >> nth=0"  # how many are visible


def look_at(log_in: LogIn, **look: Any) -> Any:
    """The page, its clock in our hands."""
    page = log_in("ada", *MAY, **look)
    page.clock.install()
    page.goto(OVERVIEW)
    return page


def after_a_while(page: Any) -> None:
    """The script's pause passes, and its answer, where it asks for one, has come."""
    with page.expect_response(f"**{OVERVIEW}"):
        page.clock.run_for(10_000)


def requests_of(page: Any) -> list[Any]:
    """What it asks for from now on."""
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    return asked


def hide(page: Any, hidden: bool) -> None:
    """As another tab in front of it does, or its going."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def has_visible(page: Any, count: int) -> None:
    page.locator(SHOWN).and_(page.locator(f"text='{count}'")).wait_for()


def test_what_changed_is_shown_and_nothing_else_moves(log_in: LogIn) -> None:
    queue = Queue("mail")
    queue.enqueue_many([{"payload": 1, "tenant": f"t{n}"} for n in range(40)])
    page = look_at(log_in)
    page.click(".tenants summary")
    page.focus("#queues a:has-text('Pause…')")
    page.evaluate("scrollTo(0, 333)")

    queue.enqueue({}, tenant="t1")
    Queue("another", using=queue.using).enqueue({})  # stands before it from now on
    after_a_while(page)

    has_visible(page, 41)
    assert "queue=mail" in page.evaluate("document.activeElement.href")
    assert page.evaluate("scrollY") == 333
    assert page.is_visible(".tenants th[scope=row]:has-text('t39')")
    assert page.inner_text("#changes") == ""


def test_a_change_of_verdict_is_announced(log_in: LogIn) -> None:
    queue = Queue("mail")
    queue.enqueue({})
    page = look_at(log_in)

    queue.pause(by="ada", reason="bad deploy")
    after_a_while(page)

    page.wait_for_selector("text=bad deploy")
    assert page.text_content("#changes") == "mail: Paused"
    assert page.get_attribute("#changes", "role") == "status"


def test_nobody_asks_for_what_nobody_sees(log_in: LogIn) -> None:
    queue = Queue("mail")
    queue.enqueue({})
    page = look_at(log_in)
    asked = requests_of(page)

    hide(page, True)
    page.clock.run_for(60_000)
    assert asked == []
    queue.enqueue({})
    hide(page, False)

    has_visible(page, 2)


def test_what_can_t_be_renewed_says_since_when_and_is_left_alone(log_in: LogIn) -> None:
    queue = Queue("mail")
    queue.enqueue({})
    page = look_at(log_in)
    page.context.clear_cookies()  # logged out: the answer would be another page

    page.clock.run_for(10_000)
    page.wait_for_selector("text=Not renewed any more: last renewed at 2")
    asked = requests_of(page)
    page.clock.run_for(60_000)

    assert asked == []
    assert not page.is_checked("#renew")
    assert page.inner_text(SHOWN) == "1"


def test_who_wants_less_motion_has_to_ask_for_it(log_in: LogIn) -> None:
    queue = Queue("mail")
    queue.enqueue({})
    page = look_at(log_in, reduced_motion="reduce")
    asked = requests_of(page)

    page.clock.run_for(60_000)
    assert asked == []
    queue.enqueue({})
    page.check("#renew")

    has_visible(page, 2)


def test_what_is_being_selected_stays(log_in: LogIn) -> None:
    Queue("mail").enqueue({})
    page = look_at(log_in)

    page.evaluate("getSelection().selectAllChildren(document.querySelector('#queues h2'))")
    after_a_while(page)
    after_a_while(page)  # the first answer has been dealt with by then

    assert page.evaluate("String(getSelection())").strip() == "mail"


def test_a_queue_s_last_hour_is_drawn(log_in: LogIn, look: Look) -> None:
    """The mail server went away a quarter of an hour ago, and orders have been invoiced since."""
    clock = FakeClock(Queue("mail").now() - timedelta(hours=1))
    mail, orders = (Queue(name, clock=clock) for name in ("mail", "orders"))
    for minute in range(60):
        clock.set(60 * minute)
        for queue in (orders, mail):
            queue.enqueue_many(
                [{"payload": 1, "tenant": f"shop {n}"} for n in range(1 + minute % 7)]
            )
        for lease in orders.claim(worker="w1", limit=5):
            orders.complete(lease)
        for lease in mail.claim(worker="w1", limit=4):
            if minute < 45:
                mail.complete(lease)
            else:
                mail.fail(lease, ConnectionRefusedError(111), retryable=minute < 50)
    clock.set(3600)
    facts: dict[str, Any] = {
        "host": "app-1",
        "pid": 4711,
        "threads": 2,
        "queues": ("mail", "orders"),
        "tasks": (),
    }
    w1 = WorkerFacts(name="w1", started_at=clock.start, seen_at=clock.now(), alive=True, **facts)
    registry.tell(mail.using, w1)

    page = log_in("ada", *MAY)
    page.goto(OVERVIEW)
    look(page, "overview")

    assert "not one succeeded" in page.inner_text("[aria-labelledby=queue-mail] .standing")
    drawn = page.locator("[aria-labelledby=queue-mail] .failures .plot >> nth=0").bounding_box()
    assert drawn["height"] > 20


def test_without_scripts_the_browser_does_it(log_in: LogIn) -> None:
    Queue("mail").enqueue({})
    page = log_in("ada", *MAY, java_script_enabled=False)
    page.goto(OVERVIEW)

    assert not page.is_visible("#renew")
    page.click("text=every 10 seconds")

    assert "The page renews itself every 10 seconds" in page.inner_text("#content")
    assert page.locator("#renew").count() == 0
