"""Builds upload.csv, the file an operator uploads, out of the order book and its faults.

Run ``python -m example_project.orders.sample.build``; it needs nothing but this folder.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SAMPLE: Final = Path(__file__).parent

# Order number, product (empty: every row of the order), column, what the file says instead.
FAULTS: Final = (
    ("10251", "22", "product", "222"),  # a key pressed too often
    ("10277", "28", "product", "82"),  # two digits swapped
    ("10264", "41", "quantity", "-25"),  # a return booked as an order
    ("10290", "5", "quantity", "-20"),
    ("10256", "", "order_date", "1996-07-51"),  # digits swapped: the 15th was meant
    ("10289", "", "order_date", "26.08.1996"),  # another country's way to write it
    ("10275", "", "email", "refuses-twice@magaa.example"),  # its retries come by themselves
    ("10271", "", "email", "refuses@splir.example"),  # dead until somebody corrects the address
)


def read(name: str) -> Iterator[dict[str, str]]:
    with (SAMPLE / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def row_of(order: dict[str, str], line: dict[str, str]) -> dict[str, str]:
    row = {
        "number": order["orderID"],
        "customer": order["customerID"],
        "email": f"orders@{order['customerID'].lower()}.example",
        "order_date": order["orderDate"][:10],
        "required_date": order["requiredDate"][:10],
        "freight": order["freight"],
        "ship_name": order["shipName"],
        "ship_address": order["shipAddress"],
        "ship_city": order["shipCity"],
        "ship_region": order["shipRegion"],
        "ship_postal_code": order["shipPostalCode"],
        "ship_country": order["shipCountry"],
        "product": line["productID"],
        "unit_price": line["unitPrice"],
        "quantity": line["quantity"],
        "discount": line["discount"],
    }
    faults = (f for f in FAULTS if f[0] == row["number"] and f[1] in ("", line["productID"]))
    return row | {column: value for _, _, column, value in faults}


def rows() -> list[dict[str, str]]:
    orders = {order["orderID"]: order for order in read("orders.csv")}
    return [row_of(orders[line["orderID"]], line) for line in read("order-details.csv")]


def write(path: Path) -> None:
    table = rows()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    write(SAMPLE / "upload.csv")
