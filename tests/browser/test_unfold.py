"""The same in the clothes of django-unfold."""

from __future__ import annotations

import pytest

from django_leasequeue import Queue
from tests.unfolded import unfold

from .conftest import LogIn, Look
from .test_walk import DEAD, letters

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # Of Unfold's own code.
    pytest.mark.filterwarnings("ignore:Overriding get_action_choices"),
]


def test_from_the_dead_letter_to_the_done_task(log_in: LogIn, look: Look) -> None:
    """G22"""
    letters(1, error="mailbox {n} is full")
    with unfold():
        page = log_in("ada", "redrive_task", "view_overview", "pause_queue")
        page.goto("/admin/leasequeue/overview/")
        spoken = page.locator("#queues .visually-hidden >> nth=0")
        assert spoken.bounding_box()["width"] <= 1
        look(page, "unfold")
        page.goto(DEAD)
        page.click("#result_list a:has-text('…')")
        letter = page.url
        page.click("text=Redrive…")
        page.fill("textarea", "Emptied")
        page.click("input.default")
        assert "1 redriven. Ready now" in page.inner_text("body")

        queue = Queue("mail")
        queue.complete(queue.claim(worker="w2")[0])
        page.goto(letter)

        assert "Done at" in page.inner_text(".standing")
        assert "mailbox 0 is full" in page.inner_text("#content-main")
        assert "Emptied" in page.inner_text("#content-main")
