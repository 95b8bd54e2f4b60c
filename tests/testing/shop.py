"""The task that the examples of docs/testing.md share: their ``shop.tasks``."""

from __future__ import annotations

from django_leasequeue.tasks import task


@task(queue_name="mail")
def send_receipt(order: int) -> str:
    if order == 0:
        raise ValueError("no such order")
    return f"receipt for order {order}"
