from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.db import connection
from PIL import Image

from django_leasequeue.models import Task
from example_project.orders.checking import OrderError, check_order
from example_project.orders.invoices import render_invoice
from example_project.orders.models import Invoice, Label, Order
from example_project.orders.tasks import process_order, retry_soon, send_invoice_mail

from .conftest import AnOrder

process = process_order.func
send = send_invoice_mail.func


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"product": "222"}, "row 2, product “222”: There is no such product."),
        (
            {"quantity": "-6"},
            "row 2, quantity “-6”: Ensure this value is greater than or equal to 1.",
        ),
        ({"quantity": "1O"}, "row 2, quantity “1O”: Enter a whole number."),
        ({"discount": "15"}, "row 2, discount “15”: Ensure this value is less than or equal to 1."),
        ({"order_date": "1996-07-51"}, "row 2, order_date “1996-07-51”: Enter a valid date."),
        ({"order_date": "04.07.1996"}, "row 2, order_date “04.07.1996”: Enter a valid date."),
        ({"customer": "VINTE"}, "row 2, customer “VINTE”: There is no such customer."),
        ({"email": "none"}, "row 2, email “none”: Enter a valid email address."),
    ],
)
def test_a_wrong_order_fails_by_row_and_field_and_writes_nothing(
    an_order: AnOrder, wrong: dict[str, str], complaint: str
) -> None:
    order = an_order(wrong)

    with pytest.raises(OrderError) as failed:
        process(order.pk)

    assert str(failed.value) == f"Order 10248: {complaint}"
    assert not Invoice.objects.exists()
    assert retry_soon(failed.value, None) is None


def test_all_complaints_about_an_order_come_at_once(an_order: AnOrder) -> None:
    order = an_order({"freight": "free", "quantity": "0"}, {"freight": "free", "product": "9"})

    with pytest.raises(OrderError) as failed:
        process(order.pk)

    assert [part.split(":")[0] for part in str(failed.value).split("; ")] == [
        "Order 10248",
        "row 2, quantity “0”",
        "row 3, product “9”",
    ]


def test_a_corrected_order_is_invoiced(an_order: AnOrder) -> None:
    order = an_order({"quantity": "-6"})
    with pytest.raises(OrderError):
        process(order.pk)

    order.lines.update(quantity="6")
    process(order.pk)

    assert Invoice.objects.get(order=order).total == Decimal("116.38")


def test_an_invoice_adds_up_items_discounts_and_freight(an_order: AnOrder) -> None:
    """12 at 14.00, 10 at 9.85 less 5 % (rounded half up, as on paper), and the freight."""
    order = an_order(
        {}, {"product": "42", "unit_price": "9.85", "quantity": "10", "discount": "0.05"}
    )

    process(order.pk)

    invoice = Invoice.objects.get()
    assert (invoice.number, invoice.total) == ("INV-1996-10248", Decimal("293.96"))


def test_a_task_delivered_twice_writes_one_invoice_and_queues_one_mail(an_order: AnOrder) -> None:
    order = an_order()

    first = process(order.pk)
    second = process(order.pk)

    assert first == second == Invoice.objects.get().number
    order.refresh_from_db()
    assert [order.mail_task_id] == list(
        Task.objects.filter(queue="mail").values_list("life", flat=True)
    )


@pytest.mark.django_db(transaction=True)
def test_two_workers_on_one_order_at_once_write_one_invoice(an_order: AnOrder) -> None:
    """A lease can run out under a worker that still works: both then do the same order."""
    order = an_order()

    def deliver(_: int) -> str:
        try:
            return process(order.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as workers:
        numbers = set(workers.map(deliver, range(4)))

    assert numbers == {Invoice.objects.get().number}
    assert Task.objects.filter(queue="mail").count() == 1


def test_an_order_renders_to_the_same_bytes_every_time(an_order: AnOrder) -> None:
    """So a document written again by a second delivery is the same document."""
    checked = check_order(an_order())

    assert render_invoice(checked) == render_invoice(checked)


def test_an_order_of_many_items_takes_a_second_page(an_order: AnOrder) -> None:
    short = check_order(an_order())
    long = check_order(an_order(*[{"number": "2"}] * 30))

    assert b"/Count 1" in render_invoice(short)
    assert b"/Count 2" in render_invoice(long)


def test_names_are_text_in_a_pdf_and_never_markup(an_order: AnOrder) -> None:
    order = an_order({"ship_name": "<b>Split & Rail</i>"})

    process(order.pk)

    assert Invoice.objects.exists()


def test_the_label_is_a_thumbnail_however_long_the_address(an_order: AnOrder) -> None:
    order = an_order({"ship_address": "Carrera 22 con Ave. Carlos Soublette " * 2})

    process(order.pk)

    with Label.objects.get().image.open() as file, Image.open(file) as picture:
        assert (picture.format, picture.size) == ("PNG", (400, 280))


def test_an_invoice_is_mailed_once_however_often_its_task_is_delivered(
    an_order: AnOrder, mailoutbox: list[Any]
) -> None:
    process(an_order().pk)
    invoice = Invoice.objects.get()

    assert send(invoice.pk) == send(invoice.pk) == "orders@vinet.example"

    [mail] = mailoutbox
    assert (mail.to, mail.subject) == (["orders@vinet.example"], "Your invoice INV-1996-10248")
    [(name, content, kind)] = mail.attachments
    assert (name, content[:5], kind) == ("INV-1996-10248.pdf", b"%PDF-", "application/pdf")
    invoice.refresh_from_db()
    assert invoice.mailed_at is not None


def test_a_mailbox_that_refuses_twice_is_tried_again_and_then_has_the_mail(
    an_order: AnOrder, mail_folder: Path
) -> None:
    process(an_order({"email": "refuses-twice@magaa.example"}).pk)
    invoice = Invoice.objects.get()

    for _ in range(2):
        with pytest.raises(SMTPRecipientsRefused) as refused:
            send(invoice.pk)
        assert retry_soon(refused.value, None) == 1.0

    assert send(invoice.pk) == "refuses-twice@magaa.example"
    [mail] = mail_folder.glob("*.log")
    assert b"Message-ID: <INV-1996-10248@northwind.example>" in mail.read_bytes()


def test_a_mailbox_that_refuses_for_good_is_not_tried_again_until_it_is_corrected(
    an_order: AnOrder, mail_folder: Path
) -> None:
    order = an_order({"email": "refuses@splir.example"})
    process(order.pk)
    invoice = Invoice.objects.get()

    with pytest.raises(SMTPRecipientsRefused) as refused:
        send(invoice.pk)
    assert retry_soon(refused.value, None) is None
    assert not list(mail_folder.glob("*.log"))

    Order.objects.update(email="accounts@splir.example")
    assert send(invoice.pk) == "accounts@splir.example"
