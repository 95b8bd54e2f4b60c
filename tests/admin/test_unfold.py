"""The queue's pages on a site with django-unfold, as its recipe has them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_leasequeue import Queue
from django_leasequeue.models import Batch
from tests.unfolded import unfold

# Of Unfold's own code.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding get_action_choices")


@pytest.fixture
def unfolded(db: None) -> Iterator[Client]:
    """A superuser's browser at that site."""
    with unfold():
        client = Client()
        client.force_login(User.objects.create_superuser("ada"))
        yield client


def shown(client: Client, address: str) -> str:
    answer = client.get(f"/admin/leasequeue/{address}")
    assert answer.status_code == 200, address
    text = answer.content.decode()
    assert "unfold/css/styles.css" in text
    assert "leasequeue/unfold.css" in text
    return text


def test_each_page_wears_it(unfolded: Client) -> None:
    mail = Queue("mail")
    mail.enqueue_many([{"payload": {"n": n}} for n in range(3)])
    [lost, failed, _] = mail.claim(worker="w1", limit=3)
    mail.fail(failed, ValueError("no stock"), retryable=False)
    mail.pause()

    for address in ("overview/", "task/", "tasktransition/", "pause/", "deadletter/groups/"):
        assert "mail" in shown(unfolded, address) or "no stock" in shown(unfolded, address)
    assert "w1" in shown(unfolded, f"task/{lost.seq}/change/")
    assert "ValueError: no stock" in shown(unfolded, f"deadletter/{failed.seq}/change/")
    assert "leased" in shown(unfolded, f"tasktransition/{lost.token}/change/")
    assert "Resume mail" in shown(unfolded, "overview/resume/?queue=mail")


def test_a_letter_is_redriven_from_the_list(unfolded: Client) -> None:
    mail = Queue("mail")
    mail.enqueue({"n": 1})
    [lease] = mail.claim(worker="w1")
    mail.fail(lease, ValueError("no stock"), retryable=False)

    assert f'value="{lease.seq}"' in shown(unfolded, "deadletter/")
    form: dict[str, Any] = {"action": "redrive_selected", "_selected_action": lease.seq}
    asked = unfolded.post("/admin/leasequeue/deadletter/", form)
    until = re.search(r'name="until" value="([^"]+)"', asked.content.decode())
    assert until
    form |= {"confirmed": "yes", "reason": "mended", "until": html.unescape(until[1])}
    done = unfolded.post("/admin/leasequeue/deadletter/", form, follow=True)

    assert "1 redriven" in done.content.decode()
    assert mail.depth().visible == 1
    assert "mended" in shown(unfolded, f"batch/{Batch.objects.get().pk}/change/")
