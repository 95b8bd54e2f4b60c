"""What the worker does for an order: invoice and label, then the mail.

Deliveries may repeat: a worker can die after its commit and before it says so. Each task
therefore locks its row, looks whether the work is done, and commits the work together with the
record of it; a second delivery finds the record and does nothing.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models.functions import Now

from django_leasequeue.tasks import task

from .checking import CheckedOrder, OrderError, check_order
from .invoices import invoice_number, render_invoice
from .labels import render_label
from .mail import invoice_mail, refused_for_good
from .models import Invoice, Label, Order


def retry_soon(error: BaseException, result: Any) -> float | None:
    """A second's delay; none at all, so no retry, where only a person can help."""
    if isinstance(error, OrderError | ObjectDoesNotExist) or refused_for_good(error):
        return None
    return 1.0


@task(queue_name="orders", max_attempts=3, backoff=retry_soon)
def process_order(order_id: int) -> str:
    """Check the order, write its invoice and label, and queue the mail. Returns the invoice number.

    Raises:
        OrderError: the order needs correcting; nothing was written.
    """
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        invoice = Invoice.objects.filter(order=order).first()
        if invoice is None:
            invoice = write_documents(order, check_order(order))
            mail = send_invoice_mail.using(tenant=order.customer).enqueue(invoice.pk)
            order.mail_task_id = mail.id
            order.save(update_fields=["mail_task_id"])
        return invoice.number


def write_documents(order: Order, checked: CheckedOrder) -> Invoice:
    invoice = Invoice(order=order, number=invoice_number(checked), total=checked.total)
    invoice.pdf.save(f"{invoice.number}.pdf", ContentFile(render_invoice(checked)), save=False)
    invoice.save()
    label = Label(order=order)
    label.image.save(f"{order.number}.png", ContentFile(render_label(checked)), save=False)
    label.save()
    return invoice


@task(queue_name="mail", max_attempts=4, backoff=retry_soon)
def send_invoice_mail(invoice_id: int) -> str:
    """Mail the invoice to the order's address as it now reads. Returns the address.

    A worker that dies between the sending and the commit mails it again, under the same
    Message-ID: no database can take back a letter.
    """
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update().get(pk=invoice_id)
        if invoice.mailed_at is None:
            invoice_mail(invoice).send()
            invoice.mailed_to = invoice.order.email
            invoice.mailed_at = Now()
            invoice.save(update_fields=["mailed_to", "mailed_at"])
        return invoice.mailed_to
