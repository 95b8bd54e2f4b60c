"""How far the work on an order is, as the queue knows it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from django_leasequeue.models import Task

from .models import Invoice, Order


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of an order's two tasks. ``dead_letter`` is its admin page, where it can be redriven."""

    name: str
    state: str
    error: str = ""
    dead_letter: str = ""


def steps_of(order: Order) -> list[Step]:
    """The steps of *order* in the order they are taken; one that isn't due yet is left out."""
    invoice = Invoice.objects.filter(order=order).first()
    steps = [step("Invoice and label", order.task_id, done=invoice is not None)]
    if invoice:
        steps.append(step("Mail", order.mail_task_id, done=invoice.mailed_at is not None))
    return steps


def step(name: str, life: UUID | None, *, done: bool) -> Step:
    if done:
        return Step(name=name, state="done")
    held = Task.objects.filter(life=life).first() if life else None
    if held is None:
        return Step(name=name, state="not in the queue")
    if held.state != "dead":
        return Step(name=name, state=held.state, error=held.last_error)
    page = reverse("admin:leasequeue_deadletter_change", args=[held.pk])
    return Step(name=name, state="dead", error=held.last_error, dead_letter=page)
