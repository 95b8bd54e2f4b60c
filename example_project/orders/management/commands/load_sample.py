from __future__ import annotations

from typing import Any, Final

from django.core.files import File
from django.core.management.base import BaseCommand
from django.db import transaction

from example_project.orders.models import Customer, Product, Upload
from example_project.orders.sample.build import SAMPLE, read
from example_project.orders.uploads import read_upload, receive

NAME: Final = "upload.csv"


class Command(BaseCommand):
    help = "Load the customers and products of the sample, and upload its orders, once."

    def handle(self, **options: Any) -> None:
        if Upload.objects.filter(name=NAME).exists():
            self.stdout.write("The sample is loaded already.")
            return
        upload = load()
        self.stdout.write(f"{upload.orders} orders of {upload.lines} lines are in the queue.")


@transaction.atomic
def load() -> Upload:
    Customer.objects.bulk_create(map(customer, read("customers.csv")), ignore_conflicts=True)
    Product.objects.bulk_create(map(product, read("products.csv")), ignore_conflicts=True)
    with (SAMPLE / NAME).open("rb") as source:
        upload = Upload(name=NAME, file=File(source, NAME))
        orders = read_upload(upload.file)
        upload.file.seek(0)
        receive(upload, orders)
    return upload


def customer(row: dict[str, str]) -> Customer:
    return Customer(
        code=row["customerID"],
        name=row["companyName"],
        address=row["address"],
        city=row["city"],
        region=row["region"],
        postal_code=row["postalCode"],
        country=row["country"],
    )


def product(row: dict[str, str]) -> Product:
    return Product(
        number=int(row["productID"]),
        name=row["productName"],
        packaging=row["quantityPerUnit"],
        unit_price=row["unitPrice"],
        discontinued=row["discontinued"] == "1",
    )
