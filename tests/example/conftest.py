from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.files.base import ContentFile

from example_project.orders.models import Customer, Order, Product, Upload
from example_project.orders.uploads import read_upload, receive

ROW = {
    "number": "10248",
    "customer": "VINET",
    "email": "orders@vinet.example",
    "order_date": "1996-07-04",
    "required_date": "1996-08-01",
    "freight": "32.38",
    "ship_name": "Vins et alcools Chevalier",
    "ship_address": "59 rue de l'Abbaye",
    "ship_city": "Reims",
    "ship_region": "",
    "ship_postal_code": "51100",
    "ship_country": "France",
    "product": "11",
    "unit_price": "14.00",
    "quantity": "12",
    "discount": "0",
}

ACsv = Callable[..., "ContentFile[bytes]"]
AnOrder = Callable[..., Order]


@pytest.fixture
def a_csv() -> ACsv:
    """A file to upload: one row per argument, which says what differs from a good row."""

    def build(*rows: dict[str, str], without: str = "") -> ContentFile[bytes]:
        columns = [name for name in ROW if name != without]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROW | row for row in rows)
        return ContentFile(text.getvalue().encode(), "orders.csv")

    return build


@pytest.fixture
def an_order(db: None, a_csv: ACsv) -> AnOrder:
    """An uploaded order; the arguments are rows, as of ``a_csv``."""
    Customer.objects.create(
        code="VINET", name="Vins et alcools Chevalier", address="59 rue de l'Abbaye",
        city="Reims", postal_code="51100", country="France",
    )  # fmt: skip
    for number, name in ((11, "Queso Cabrales"), (42, "Singaporean Hokkien Fried Mee")):
        Product.objects.create(number=number, name=name, packaging="1 kg pkg.", unit_price="21")

    def build(*rows: dict[str, str]) -> Order:
        file = a_csv(*(rows or [{}]))
        receive(Upload(name="orders.csv", file=file), read_upload(file))
        return Order.objects.latest("pk")

    return build


@pytest.fixture
def mail_folder(settings: Any, tmp_path: Path) -> Path:
    """Mail goes to files in here, through the example's own backend."""
    backend = "example_project.orders.mail.EmailBackend"
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": {"file_path": tmp_path}}}
    else:
        settings.EMAIL_BACKEND = backend
        settings.EMAIL_FILE_PATH = tmp_path
    return tmp_path
