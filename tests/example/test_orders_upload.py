from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command

from django_leasequeue.models import Task
from example_project.orders.checking import OrderError, check_order
from example_project.orders.models import Order, OrderLine, Upload
from example_project.orders.sample.build import FAULTS, SAMPLE, write
from example_project.orders.uploads import UploadError, read_upload, receive

from .conftest import ACsv


def upload(file: ContentFile[bytes]) -> Upload:
    received = Upload(name="orders.csv", file=file)
    receive(received, read_upload(file))
    return received


@pytest.mark.django_db
def test_each_uploaded_order_becomes_one_task_of_its_customer(a_csv: ACsv) -> None:
    upload(
        a_csv(
            {"number": "1", "customer": "VINET"},
            {"number": "1", "customer": "VINET", "product": "42"},
            {"number": "2", "customer": "ALFKI"},
        )
    )

    orders = Order.objects.values_list("number", "customer", "row", "task_id")
    tasks = dict(Task.objects.filter(queue="orders").values_list("life", "tenant"))
    assert [order[:3] for order in orders] == [("1", "VINET", 2), ("2", "ALFKI", 4)]
    assert tasks == {task_id: customer for _, customer, _, task_id in orders}
    assert list(OrderLine.objects.values_list("row", "product")) == [
        (2, "11"),
        (3, "42"),
        (4, "11"),
    ]


@pytest.mark.django_db
def test_a_file_that_comes_twice_adds_no_order_and_no_task(a_csv: ACsv) -> None:
    upload(a_csv({"number": "1"}))

    again = upload(a_csv({"number": "1", "quantity": "99"}, {"number": "2"}))

    assert (again.orders, again.lines, again.skipped) == (1, 1, 1)
    assert OrderLine.objects.get(order__number="1").quantity == "12"
    assert Task.objects.count() == 2


@pytest.mark.django_db
def test_what_a_row_says_is_stored_even_where_it_is_nonsense(a_csv: ACsv) -> None:
    """A person has to see what was sent in order to correct it."""
    upload(a_csv({"order_date": "1996-07-51", "quantity": "-6", "product": "", "email": "x"}))

    order = Order.objects.get()
    line = order.lines.get()
    assert (order.order_date, order.email) == ("1996-07-51", "x")
    assert (line.quantity, line.product) == ("-6", "")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "The file has no rows."),
        ([{"number": ""}], "Row 2: an order number has letters, digits and dashes only."),
        ([{"number": "../1"}], "Row 2: an order number has letters, digits and dashes only."),
        ([{}, {"ship_city": "Rheims"}], "Row 3: order 10248 differs from row 2."),
        ([{"customer": "V\0"}], "Row 2: customer is over 100 characters, or not plain text."),
        ([{"email": "v" * 101}], "Row 2: email is over 100 characters, or not plain text."),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_by_row(
    a_csv: ACsv, rows: list[dict[str, str]], complaint: str
) -> None:
    with pytest.raises(UploadError) as refused:
        read_upload(a_csv(*rows))

    assert str(refused.value) == complaint


def test_a_missing_column_is_named(a_csv: ACsv) -> None:
    with pytest.raises(UploadError, match=r"^Columns are missing: quantity\.$"):
        read_upload(a_csv({}, without="quantity"))


def test_a_row_with_a_value_too_many_is_refused(a_csv: ACsv) -> None:
    file = ContentFile(a_csv({}).read().rstrip() + b",surplus\r\n")

    with pytest.raises(UploadError, match=r"^Row 2: more values than columns\.$"):
        read_upload(file)


def test_a_file_that_is_not_utf8_is_refused(a_csv: ACsv) -> None:
    file = ContentFile("number;Größe".encode("latin-1"))

    with pytest.raises(UploadError, match=r"^The file isn't UTF-8 text\.$"):
        read_upload(file)


def test_a_byte_order_mark_is_no_part_of_the_first_column(a_csv: ACsv) -> None:
    """Spreadsheets write one."""
    [order] = read_upload(ContentFile(b"\xef\xbb\xbf" + a_csv({}).read()))

    assert order.columns["number"] == "10248"


def test_the_bundled_upload_is_the_whole_order_book(tmp_path: Path) -> None:
    with (SAMPLE / "upload.csv").open("rb") as file:
        orders = read_upload(ContentFile(file.read()))

    assert (len(orders), sum(len(order.lines) for order in orders)) == (830, 2155)


def test_the_bundled_upload_is_what_its_builder_writes(tmp_path: Path) -> None:
    write(tmp_path / "upload.csv")

    assert (tmp_path / "upload.csv").read_bytes() == (SAMPLE / "upload.csv").read_bytes()


@pytest.mark.django_db
def test_the_sample_loads_once_and_nothing_is_wrong_in_it_but_its_faults() -> None:
    call_command("load_sample", stdout=StringIO())
    call_command("load_sample", stdout=StringIO())

    assert Order.objects.count() == Task.objects.count() == 830
    wrong = {order.number for order in Order.objects.all()[:60] if complaints(order)}
    assert wrong == {number for number, _, column, _ in FAULTS if column != "email"}


def complaints(order: Order) -> str:
    try:
        check_order(order)
    except OrderError as error:
        return str(error)
    return ""
