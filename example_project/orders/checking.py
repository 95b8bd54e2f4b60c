"""Reads an uploaded order: text in, dates, amounts and products out, or every complaint at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from django import forms
from django.forms.models import model_to_dict

from .models import Customer, Order, OrderLine, Product

CENT: Final = Decimal("0.01")


class OrderError(ValueError):
    """The order can't be worked on before somebody corrects it; names rows and fields."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One line of an order; ``discount`` is a fraction of the price."""

    product: Product
    unit_price: Decimal
    quantity: int
    discount: Decimal

    @property
    def amount(self) -> Decimal:
        return (self.quantity * self.unit_price * (1 - self.discount)).quantize(CENT, ROUND_HALF_UP)


@dataclass(frozen=True, kw_only=True)
class CheckedOrder:
    number: str
    customer: Customer
    email: str
    order_date: date
    required_date: date
    freight: Decimal
    ship_to: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def total(self) -> Decimal:
        return sum((item.amount for item in self.items), self.freight)


class OrderForm(forms.Form):
    customer = forms.ModelChoiceField(
        Customer.objects, error_messages={"invalid_choice": "There is no such customer."}
    )
    email = forms.EmailField()
    order_date = forms.DateField(input_formats=["%Y-%m-%d"])
    required_date = forms.DateField(input_formats=["%Y-%m-%d"])
    freight = forms.DecimalField(min_value=0, max_digits=8, decimal_places=2)
    ship_name = forms.CharField()
    ship_address = forms.CharField()
    ship_city = forms.CharField()
    ship_country = forms.CharField()


class ItemForm(forms.Form):
    product = forms.ModelChoiceField(
        Product.objects, error_messages={"invalid_choice": "There is no such product."}
    )
    unit_price = forms.DecimalField(min_value=0, max_digits=8, decimal_places=2)
    quantity = forms.IntegerField(min_value=1, max_value=100_000)
    discount = forms.DecimalField(min_value=0, max_value=1, max_digits=6, decimal_places=3)


def check_order(order: Order) -> CheckedOrder:
    """Read *order* and its lines.

    Raises:
        OrderError: something is wrong; the message lists all of it, by row and field.
    """
    lines = list(order.lines.all())
    head = OrderForm(model_to_dict(order))
    items = [ItemForm(model_to_dict(line)) for line in lines]
    complaints = list(complaints_of(order, head))
    for line, item in zip(lines, items, strict=True):
        complaints += complaints_of(line, item)
    if not lines:
        complaints.append("there are no lines")
    if complaints:
        raise OrderError(f"Order {order.number}: " + "; ".join(complaints))
    return CheckedOrder(
        number=order.number,
        ship_to=address_of(order),
        items=tuple(Item(**item.cleaned_data) for item in items),
        **{name: head.cleaned_data[name] for name in HEAD_FIELDS},
    )


HEAD_FIELDS: Final = ("customer", "email", "order_date", "required_date", "freight")


def complaints_of(source: Order | OrderLine, form: forms.Form) -> Iterator[str]:
    for field, errors in form.errors.items():
        text: Any = getattr(source, field)
        yield f"row {source.row}, {field} “{text}”: {' '.join(map(str, errors))}"


def address_of(order: Order) -> tuple[str, ...]:
    city = " ".join(filter(None, [order.ship_postal_code, order.ship_city, order.ship_region]))
    return (order.ship_name, order.ship_address, city, order.ship_country)
