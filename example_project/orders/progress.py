"""How far the work on an order is, as the queue knows it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from django_leasequeue.models import Task, TaskTransition

from .models import Invoice, Order


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of an order's two tasks. ``story`` is its admin page, if it ever was a dead letter."""

    name: str
    state: str
    error: str = ""
    story: str = ""


def steps_of(order: Order) -> list[Step]:
    """The steps of *order* in the order they are taken; one that isn't due yet is left out."""
    invoice = Invoice.objects.filter(order=order).first()
    steps = [step("Invoice and label", order.task_id, done=invoice is not None)]
    if invoice:
        steps.append(step("Mail", order.mail_task_id, done=invoice.mailed_at is not None))
    return steps


def step(name: str, life: UUID | None, *, done: bool) -> Step:
    story = story_of(life)
    if done:
        return Step(name=name, state="done", story=story)
    held = Task.objects.filter(life=life).first() if life else None
    if held is None:
        return Step(name=name, state="not in the queue", story=story)
    return Step(name=name, state=held.state, error=held.last_error, story=story)


def story_of(life: UUID | None) -> str:
    """The page that tells why the task failed and who redrove it: it is there when all is done."""
    if life is None:
        return ""
    log = TaskTransition.objects.filter(life=life)
    if not log.filter(kind="dead").exists():
        return ""
    return reverse("admin:leasequeue_deadletter_change", args=[log.get(kind="enqueued").pk])
