"""From a CSV file to orders with a task each, all or nothing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.core.files import File
from django.db import transaction

from .models import TEXT_MAX, Order, OrderLine, Upload
from .tasks import process_order

ORDER_COLUMNS: Final = (
    "number", "customer", "email", "order_date", "required_date", "freight", "ship_name",
    "ship_address", "ship_city", "ship_region", "ship_postal_code", "ship_country",
)  # fmt: skip
LINE_COLUMNS: Final = ("product", "unit_price", "quantity", "discount")


class UploadError(ValueError):
    """The file as a whole can't be taken; nothing of it was stored."""


@dataclass(frozen=True)
class UploadedOrder:
    """One order's rows: the columns that all of them share, and each row's own."""

    row: int
    columns: dict[str, str]
    lines: dict[int, dict[str, str]] = field(default_factory=dict)


def read_upload(file: File[bytes]) -> list[UploadedOrder]:
    """Read a CSV file, one row per order line; what the rows *say* is checked later, by tasks.

    Raises:
        UploadError: it isn't such a file; the message says where it stops being one.
    """
    orders: dict[str, UploadedOrder] = {}
    for row, values in rows_of(file):
        columns = {name: values[name] for name in ORDER_COLUMNS}
        order = orders.setdefault(columns["number"], UploadedOrder(row, columns))
        if order.columns != columns:
            raise UploadError(f"Row {row}: order {columns['number']} differs from row {order.row}.")
        order.lines[row] = {name: values[name] for name in LINE_COLUMNS}
    if not orders:
        raise UploadError("The file has no rows.")
    return list(orders.values())


def rows_of(file: File[bytes]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UploadError("The file isn't UTF-8 text.") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="", restkey="more")
    try:
        refuse_missing(reader.fieldnames or ())
        for values in reader:
            refuse_unstorable(reader.line_num, values)
            yield reader.line_num, values
    except csv.Error as error:
        raise UploadError(f"Row {reader.line_num}: {error}.") from error


def refuse_missing(columns: Sequence[str]) -> None:
    missing = {*ORDER_COLUMNS, *LINE_COLUMNS}.difference(columns)
    if missing:
        raise UploadError(f"Columns are missing: {', '.join(sorted(missing))}.")


def refuse_unstorable(row: int, values: dict[str, str]) -> None:
    if "more" in values:
        raise UploadError(f"Row {row}: more values than columns.")
    if not re.fullmatch(r"[A-Za-z0-9-]+", values["number"]):  # it names files, too
        raise UploadError(f"Row {row}: an order number has letters, digits and dashes only.")
    for name, value in values.items():
        if len(value) > TEXT_MAX or re.search(r"[\x00-\x1f\x7f-\x9f]", value):
            raise UploadError(
                f"Row {row}: {name} is over {TEXT_MAX} characters, or not plain text."
            )


@transaction.atomic
def receive(upload: Upload, uploaded: list[UploadedOrder]) -> None:
    """Store *upload* and its new orders, and enqueue a task for each: one transaction.

    An order that is in the book already stays as it is, so that a file may come twice.
    """
    numbers = [order.columns["number"] for order in uploaded]
    known = set(Order.objects.filter(number__in=numbers).values_list("number", flat=True))
    new = [order for order in uploaded if order.columns["number"] not in known]
    upload.orders = len(new)
    upload.lines = sum(len(order.lines) for order in new)
    upload.skipped = len(known)
    upload.save()
    enqueue(store(upload, new))


def store(upload: Upload, uploaded: list[UploadedOrder]) -> list[Order]:
    orders = Order.objects.bulk_create(
        Order(upload=upload, row=order.row, **order.columns) for order in uploaded
    )
    OrderLine.objects.bulk_create(
        OrderLine(order=order, row=row, **columns)
        for order, source in zip(orders, uploaded, strict=True)
        for row, columns in source.lines.items()
    )
    return orders


def enqueue(orders: list[Order]) -> None:
    for order in orders:
        # A customer with a thousand orders must not keep the others waiting: tenants take turns.
        order.task_id = process_order.using(tenant=order.customer).enqueue(order.pk).id
    Order.objects.bulk_update(orders, ["task_id"])
