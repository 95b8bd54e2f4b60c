"""The whole story by the doors that people use: wrong orders die, are corrected, redriven, done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from django_leasequeue.models import DeadLetter, Task, TaskTransition
from example_project.orders.management.commands.sample_status import status_of_work
from example_project.orders.models import Invoice, Order
from example_project.orders.tasks import process_order

from .conftest import AnOrder

DEAD_LETTERS = reverse("admin:leasequeue_deadletter_changelist")


def work(deliveries: int) -> None:
    """Run the worker for so many deliveries; it waits for retries that aren't due yet."""
    call_command("leasequeue_worker", max_tasks=deliveries, poll_interval=0.2)


def page(browser: Client, order: Order) -> str:
    url = reverse("admin:orders_order_change", args=[order.pk])
    return browser.get(url).content.decode()


def redrive_all(browser: Client) -> None:
    numbers = DeadLetter.objects.filter(state="dead").values_list("pk", flat=True)
    selection: dict[str, Any] = {"action": "redrive_selected", "_selected_action": list(numbers)}
    asked = browser.post(DEAD_LETTERS, selection)
    confirmation = {"confirmed": "yes", "until": asked.context["form"].initial["until"]}
    browser.post(DEAD_LETTERS, selection | confirmation | {"reason": "corrected"})


def kinds(order: Order) -> list[str]:
    history = TaskTransition.objects.filter(life=str(order.task_id)).order_by("pk")
    return list(history.values_list("kind", flat=True))


@pytest.mark.django_db(transaction=True)
def test_what_was_wrong_is_corrected_and_redriven_and_nothing_is_done_twice(
    an_order: AnOrder, mail_folder: Path, admin_client: Client, admin_user: User
) -> None:
    an_order({"number": "1"})
    an_order({"number": "2", "email": "refuses-twice@magaa.example"})
    gone = an_order({"number": "3", "email": "refuses@splir.example"})
    wrong = an_order({"number": "4", "quantity": "-6"})

    work(deliveries=4 + 1 + 3 + 1)  # four orders; one mail at once, one at the third try, one never

    assert status_of_work() == {
        "orders": 4,
        "invoiced": 3,
        "mailed": 2,
        "dead_letters": 2,
        "in_flight": 0,
    }
    assert "5.1.1 No such mailbox" in page(admin_client, gone)
    assert "row 2, quantity “-6”" in page(admin_client, wrong)
    dead = Task.objects.get(life=str(wrong.task_id))
    assert f"{DEAD_LETTERS}{dead.pk}/change/" in page(admin_client, wrong)

    Order.objects.filter(pk=gone.pk).update(email="accounts@splir.example")
    wrong.lines.update(quantity="6")
    redrive_all(admin_client)
    assert "Invoice and label: <b>ready</b>" in page(admin_client, wrong)
    work(deliveries=1 + 2)  # the order, and both mails

    assert status_of_work() == {
        "orders": 4,
        "invoiced": 4,
        "mailed": 4,
        "dead_letters": 0,
        "in_flight": 0,
    }
    assert f"{DEAD_LETTERS}{dead.pk}/change/" in page(admin_client, wrong)
    assert kinds(wrong) == ["enqueued", "leased", "dead", "redriven", "leased", "acked"]
    redriven = TaskTransition.objects.get(life=str(wrong.task_id), kind="redriven")
    assert admin_user.get_username() in str(redriven.transition.facts["by"])
    assert process_order.call(wrong.pk) == Invoice.objects.get(order=wrong).number
    sent = b"".join(file.read_bytes() for file in mail_folder.glob("*.log"))
    assert sent.count(b"Message-ID: <INV-1996-") == Invoice.objects.count() == 4
