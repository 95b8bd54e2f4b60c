from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_leasequeue.models import DeadLetter
from django_leasequeue.testing import run_tasks
from example_project.orders.models import Invoice, Order, Upload
from example_project.orders.tasks import process_order, send_invoice_mail

from .conftest import ACsv, AnOrder

UPLOAD = "/admin/orders/upload/add/"


def change_page(order: Order) -> str:
    return reverse("admin:orders_order_change", args=[order.pk])


def posted(order: Order, **corrections: str) -> dict[str, Any]:
    """What the change page's form sends: the order and its only line, corrected."""
    line = order.lines.get()
    head = {f.name: getattr(order, f.name) for f in order._meta.fields if f.editable}
    body = {f: getattr(line, f) for f in ("id", "product", "quantity", "unit_price", "discount")}
    forms = {"lines-TOTAL_FORMS": 1, "lines-INITIAL_FORMS": 1}
    rows = {f"lines-0-{name}": value for name, value in body.items()}
    return head | forms | rows | {"lines-0-order": order.pk} | corrections


@pytest.fixture
def failed(an_order: AnOrder, transactional_db: None) -> Order:
    """An order that is wrong, and has a dead letter for it."""
    order = an_order({"order_date": "1996-07-51"})
    run_tasks()
    return order


def test_a_dead_letter_leads_to_its_order(admin_client: Client, failed: Order) -> None:
    letter = DeadLetter.objects.get()

    page = admin_client.get(reverse("admin:leasequeue_deadletter_change", args=[letter.pk]))

    assert f'<a href="{change_page(failed)}">Order {failed.number}</a>' in page.content.decode()


@pytest.mark.parametrize(("pages", "rows"), [("deadletter", 1), ("task", 0), ("tasktransition", 3)])
def test_an_orders_number_finds_its_tasks(
    admin_client: Client, failed: Order, pages: str, rows: int
) -> None:
    process_order.enqueue(0)  # of another order

    lists = reverse(f"admin:leasequeue_{pages}_changelist")

    assert len(admin_client.get(lists, {"q": failed.number}).context["cl"].result_list) == rows
    assert not admin_client.get(lists, {"q": "no such number"}).context["cl"].result_list


@pytest.fixture
def anna(db: None) -> User:
    return User.objects.create_user("anna", password="secret", is_staff=True)


def test_an_operator_uploads_a_file(admin_client: Client, admin_user: User, a_csv: ACsv) -> None:
    page = admin_client.post(UPLOAD, {"file": a_csv({"number": "1"}, {"number": "2"})}, follow=True)

    upload = Upload.objects.get()
    assert (upload.name, upload.uploaded_by, upload.orders) == ("orders.csv", admin_user, 2)
    with upload.file.open() as file:
        assert file.read().startswith(b"number,customer")
    assert "2 new orders, 0 already known." in page.content.decode()


def test_a_file_that_cannot_be_taken_stores_nothing_and_says_why(
    admin_client: Client, a_csv: ACsv
) -> None:
    page = admin_client.post(UPLOAD, {"file": a_csv({}, without="quantity")})

    assert "Columns are missing: quantity." in page.content.decode()
    assert not Upload.objects.exists()


def test_the_upload_page_is_for_those_who_may_add_uploads(client: Client, anna: User) -> None:
    client.force_login(anna)

    assert client.get(UPLOAD).status_code == 403


def test_what_is_wrong_is_corrected_on_the_orders_page(
    admin_client: Client, an_order: AnOrder
) -> None:
    order = an_order({"order_date": "1996-07-51", "quantity": "-6"})

    corrected = posted(order, order_date="1996-07-15", **{"lines-0-quantity": "6"})
    admin_client.post(change_page(order), corrected)

    order.refresh_from_db()
    assert (order.order_date, order.lines.get().quantity) == ("1996-07-15", "6")
    process_order.func(order.pk)


def test_of_an_invoiced_order_only_the_address_of_its_mail_can_be_changed(
    admin_client: Client, an_order: AnOrder
) -> None:
    order = an_order()
    process_order.func(order.pk)

    changes = posted(order, email="a@b.example", freight="0", **{"lines-0-quantity": "1"})
    admin_client.post(change_page(order), changes)

    order.refresh_from_db()
    assert (order.email, order.freight) == ("a@b.example", "32.38")
    assert order.lines.get().quantity == "12"


def test_the_documents_open_from_the_orders_page(admin_client: Client, an_order: AnOrder) -> None:
    order = an_order()
    process_order.func(order.pk)

    page = admin_client.get(change_page(order)).content.decode()
    for name, kind in (("invoice", "application/pdf"), ("label", "image/png")):
        url = reverse(f"admin:orders_order_{name}", args=[order.pk])
        assert url in page
        document = admin_client.get(url)
        assert document["Content-Type"] == kind
        assert document.getvalue()[:4] in (b"%PDF", b"\x89PNG")


def test_documents_are_for_those_who_may_see_the_order(
    client: Client, anna: User, an_order: AnOrder
) -> None:
    order = an_order()
    process_order.func(order.pk)
    url = reverse("admin:orders_order_invoice", args=[order.pk])

    assert client.get(url).status_code == 302
    client.force_login(anna)
    assert client.get(url).status_code == 403


def test_the_list_tells_what_is_left_to_do(admin_client: Client, an_order: AnOrder) -> None:
    order = an_order()

    def statuses() -> list[str]:
        return [str(status) for status in ("to check", "to mail", "done") if listed(status)]

    def listed(status: str) -> bool:
        page = admin_client.get(reverse("admin:orders_order_changelist"), {"status": status})
        return change_page(order) in page.content.decode()

    assert statuses() == ["to check"]
    process_order.func(order.pk)
    assert statuses() == ["to mail"]
    send_invoice_mail.func(Invoice.objects.get().pk)
    assert statuses() == ["done"]


def test_no_one_makes_an_invoice_by_hand(admin_client: Client, an_order: AnOrder) -> None:
    process_order.func(an_order().pk)
    pk = Invoice.objects.get().pk

    assert admin_client.get("/admin/orders/invoice/add/").status_code == 403
    assert (
        admin_client.post(f"/admin/orders/invoice/{pk}/delete/", {"post": "yes"}).status_code == 403
    )
    assert admin_client.get(f"/admin/orders/invoice/{pk}/change/").status_code == 200


def test_what_a_file_says_is_text_and_never_markup(admin_client: Client, an_order: AnOrder) -> None:
    order = an_order({"ship_name": "<script>alert(1)</script>"})

    for page in (change_page(order), reverse("admin:orders_order_changelist")):
        assert "<script>alert(1)" not in admin_client.get(page).content.decode()
