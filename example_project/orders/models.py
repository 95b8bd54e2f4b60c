"""The order book: what was uploaded, as it was uploaded, and the documents made from it."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.files.storage import FileSystemStorage
from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, Value, When

from django_leasequeue.models import Task

TEXT_MAX: Final = 100


def documents() -> FileSystemStorage:
    """Where invoices and labels lie: the same document written again replaces itself."""
    return FileSystemStorage(allow_overwrite=True)


def as_uploaded() -> models.CharField[str, str]:
    """Text exactly as the file had it, so that "1996-07-51" can be kept, shown and corrected."""
    return models.CharField(max_length=TEXT_MAX, blank=True)


class Customer(models.Model):
    code = models.CharField(max_length=10, primary_key=True)
    name = models.CharField(max_length=TEXT_MAX)
    address = models.CharField(max_length=TEXT_MAX)
    city = models.CharField(max_length=TEXT_MAX)
    region = models.CharField(max_length=TEXT_MAX, blank=True)
    postal_code = models.CharField(max_length=20, blank=True)
    country = models.CharField(max_length=TEXT_MAX)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    number = models.PositiveIntegerField(primary_key=True)
    name = models.CharField(max_length=TEXT_MAX)
    packaging = models.CharField(max_length=TEXT_MAX)
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)
    discontinued = models.BooleanField(default=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Upload(models.Model):
    """One CSV file of orders, and what came of it."""

    name = models.CharField("file name", max_length=200)
    file = models.FileField(upload_to="uploads/", help_text="CSV in UTF-8, one row per order line.")
    uploaded_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True)
    uploaded_at = models.DateTimeField(auto_now_add=True)
    orders = models.PositiveIntegerField("new orders", default=0)
    lines = models.PositiveIntegerField("order lines", default=0)
    skipped = models.PositiveIntegerField("orders already known", default=0)

    class Meta:
        ordering = ("-uploaded_at",)

    def __str__(self) -> str:
        return self.name


class OrderStatus(models.TextChoices):
    DONE = "done", "Done"
    FAILED = "failed", "Needs attention"
    TO_MAIL = "to mail", "Invoice to be mailed"
    TO_CHECK = "to check", "To be invoiced"


class OrderQuerySet(models.QuerySet["Order"]):
    def with_status(self) -> OrderQuerySet:
        """Add ``status``: derived from the documents and the queue, kept nowhere."""
        its_tasks = Q(life=OuterRef("task_id")) | Q(life=OuterRef("mail_task_id"))
        return self.annotate(
            status=Case(
                When(invoice__mailed_at__isnull=False, then=Value(OrderStatus.DONE)),
                When(Exists(Task.objects.filter(its_tasks, state="dead")), then=Value("failed")),
                When(invoice__isnull=False, then=Value(OrderStatus.TO_MAIL)),
                default=Value(OrderStatus.TO_CHECK),
            )
        )


class Order(models.Model):
    """An order as it was uploaded or corrected: text, checked each time work is done on it.

    ``task_id`` and ``mail_task_id`` are the ids of its two tasks' results.
    """

    upload = models.ForeignKey(Upload, models.PROTECT, related_name="received")
    row = models.PositiveIntegerField("first row in the file")
    number = models.CharField("order", max_length=TEXT_MAX, unique=True)
    customer = as_uploaded()
    email = as_uploaded()
    order_date = as_uploaded()
    required_date = as_uploaded()
    freight = as_uploaded()
    ship_name = as_uploaded()
    ship_address = as_uploaded()
    ship_city = as_uploaded()
    ship_region = as_uploaded()
    ship_postal_code = as_uploaded()
    ship_country = as_uploaded()
    task_id = models.UUIDField(null=True, editable=False)
    mail_task_id = models.UUIDField(null=True, editable=False)

    objects = OrderQuerySet.as_manager()

    class Meta:
        ordering = ("number",)

    def __str__(self) -> str:
        return f"Order {self.number}"


class OrderLine(models.Model):
    """One row of the file."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    row = models.PositiveIntegerField("row in the file")
    product = as_uploaded()
    unit_price = as_uploaded()
    quantity = as_uploaded()
    discount = as_uploaded()

    class Meta:
        ordering = ("row",)

    def __str__(self) -> str:
        return f"row {self.row}"


class Invoice(models.Model):
    """The one invoice of an order, and whether its customer has it."""

    order = models.OneToOneField(Order, models.PROTECT)
    number = models.CharField(max_length=TEXT_MAX + 10, unique=True)
    total = models.DecimalField(max_digits=12, decimal_places=2)
    pdf = models.FileField(upload_to="invoices/", storage=documents)
    created_at = models.DateTimeField(auto_now_add=True)
    mailed_to = models.EmailField(blank=True)
    mailed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("number",)

    def __str__(self) -> str:
        return self.number


class Label(models.Model):
    """The delivery label of an order: a picture, small enough for a list."""

    order = models.OneToOneField(Order, models.PROTECT)
    image = models.FileField(upload_to="labels/", storage=documents)

    def __str__(self) -> str:
        return f"label of {self.order}"
