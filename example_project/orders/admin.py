"""The operator's desk: upload orders, see how far they are, correct what is wrong.

The queue's own pages are registered anew, so that a task leads to its order and an order's number
to its tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, Q, QuerySet
from django.forms import TextInput
from django.http import FileResponse, HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from django_leasequeue.admin import DeadLetterAdmin, TaskAdmin, TransitionAdmin
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.models import DeadLetter, Task, TaskTransition
from django_leasequeue.transitions import TaskRecord

from .forms import UploadForm
from .models import Customer, Invoice, Label, Order, OrderLine, OrderStatus, Product, Upload
from .progress import Step, steps_of
from .uploads import LINE_COLUMNS, ORDER_COLUMNS, receive


class RecordAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """For what is on record: to be looked at, not to be changed by hand."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("code", "name", "city", "country")
    list_filter = ("country",)
    search_fields = ("code", "name", "city")


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("number", "name", "packaging", "unit_price", "discontinued")
    list_filter = ("discontinued",)
    search_fields = ("number", "name")


@admin.register(Upload)
class UploadAdmin(RecordAdmin):
    form = UploadForm
    list_display = ("name", "uploaded_at", "uploaded_by", "orders", "lines", "skipped")
    readonly_fields = list_display
    fields = list_display
    columns = f"Columns: {', '.join(ORDER_COLUMNS + LINE_COLUMNS)}."
    add_fieldsets = ((None, {"fields": ["file"], "description": columns}),)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        return super().add_view(request, form_url, {"title": "Upload orders"})

    def get_fieldsets(self, request: HttpRequest, obj: Upload | None = None) -> Any:
        return super().get_fieldsets(request, obj) if obj else self.add_fieldsets

    def save_model(self, request: HttpRequest, obj: Upload, form: Any, change: bool) -> None:
        obj.name = obj.file.name or ""
        obj.uploaded_by_id = request.user.pk
        receive(obj, form.orders)
        self.message_user(request, f"{obj.orders} new orders, {obj.skipped} already known.")


class StatusFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return OrderStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class OrderLineInline(admin.TabularInline):  # type: ignore[type-arg]
    model = OrderLine
    fields = ("product", "product_name", "quantity", "unit_price", "discount")
    readonly_fields = ("product_name",)
    formfield_overrides: ClassVar[dict[Any, Any]] = {CharField: {"widget": TextInput({"size": 10})}}
    extra = max_num = 0

    @admin.display(description="product name")
    def product_name(self, line: OrderLine) -> str:
        known = line.product.isdecimal() and Product.objects.filter(pk=line.product).first()
        return str(known or "unknown")

    def has_change_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return super().has_change_permission(request, obj) and not is_invoiced(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not is_invoiced(obj)


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("number", "ship_name", "ship_country", "order_date", "state")
    list_filter = (StatusFilter, "upload", "ship_country")
    search_fields = ("number", "customer", "ship_name", "email")
    inlines = (OrderLineInline,)
    fieldsets = (
        (None, {"fields": ["number", "work", "documents", ("upload", "row")]}),
        ("As uploaded", {"fields": [("customer", "email"), ORDER_COLUMNS[3:6]]}),
        ("Deliver to", {"fields": [ORDER_COLUMNS[6:9], ORDER_COLUMNS[9:]]}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Order]:
        return Order.objects.with_status()

    def get_readonly_fields(
        self, request: HttpRequest, obj: Order | None = None
    ) -> tuple[str, ...]:
        """An invoiced order stands; only where its invoice is mailed to can be corrected."""
        fixed = [c for c in ORDER_COLUMNS if c != "email"] if is_invoiced(obj) else ["number"]
        return (*fixed, "work", "documents", "upload", "row")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return False

    @admin.display(description="status", ordering="status")
    def state(self, order: Any) -> str:
        label = OrderStatus(order.status).label
        if order.status == OrderStatus.FAILED:
            return format_html('<b style="color: var(--error-fg)">{}</b>', label)
        return label

    @admin.display(description="state of the work")
    def work(self, order: Order) -> SafeString:
        """Each step, why it failed, and the way to redrive it."""
        steps = ((s.name, s.state, s.error, story_link(s)) for s in steps_of(order))
        return format_html_join(mark_safe("<br>"), "{}: <b>{}</b> {} {}", steps)

    @admin.display(description="documents")
    def documents(self, order: Order) -> SafeString | str:
        if not is_invoiced(order):
            return "None yet."
        pdf = reverse("admin:orders_order_invoice", args=[order.pk])
        label = reverse("admin:orders_order_label", args=[order.pk])
        html = '<a href="{}">{}</a><br><img src="{}" alt="Delivery label" width="400">'
        return format_html(html, pdf, order.invoice, label)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/invoice/", view(self.invoice_view), name="orders_order_invoice"),
            path("<int:pk>/label/", view(self.label_view), name="orders_order_label"),
            *super().get_urls(),
        ]

    def invoice_view(self, request: HttpRequest, pk: int) -> FileResponse:
        return self.document(request, get_object_or_404(Invoice, order=pk).pdf)

    def label_view(self, request: HttpRequest, pk: int) -> FileResponse:
        return self.document(request, get_object_or_404(Label, order=pk).image)

    def document(self, request: HttpRequest, file: Any) -> FileResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return FileResponse(file.open("rb"))


def is_invoiced(order: Order | None) -> bool:
    return order is not None and Invoice.objects.filter(order=order).exists()


def story_link(step: Step) -> SafeString | str:
    if not step.story:
        return ""
    if step.state != "dead":
        return format_html('(<a href="{}">it failed before</a>)', step.story)
    html = '<br><a href="{}">Dead letter</a>: correct and save the order, then redrive it there.'
    return format_html(html, step.story)


@admin.register(Invoice)
class InvoiceAdmin(RecordAdmin):
    list_display = ("number", "order", "total", "created_at", "mailed_to", "mailed_at", "file")
    list_filter = (("mailed_at", admin.EmptyFieldListFilter), "created_at")
    search_fields = ("number", "order__number", "mailed_to")
    list_select_related = ("order",)
    exclude = ("pdf",)
    readonly_fields = ("file",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.display(description="PDF")
    def file(self, invoice: Invoice) -> SafeString:
        url = reverse("admin:orders_order_invoice", args=[invoice.order_id])
        return format_html('<a href="{}">PDF</a>', url)


class OrderTasksMixin(ReadOnlyTaskAdmin):
    """Tasks that know their order."""

    def about(self, task: TaskRecord) -> list[tuple[str, str]]:
        orders = Order.objects.filter(Q(task_id=task.life) | Q(mail_task_id=task.life))
        page = "admin:orders_order_change"
        return [(f"Order {order.number}", reverse(page, args=[order.pk])) for order in orders]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An order's number finds its tasks."""
        if lives := lives_of_order(search_term):
            return queryset.filter(life__in=lives), False
        return super().get_search_results(request, queryset, search_term)


def lives_of_order(number: str) -> list[UUID]:
    orders = Order.objects.filter(number=number.strip()).values_list("task_id", "mail_task_id")
    return [life for lives in orders for life in lives if life]


for model, pages in (
    (DeadLetter, DeadLetterAdmin),
    (Task, TaskAdmin),
    (TaskTransition, TransitionAdmin),
):
    admin.site.unregister(model)
    admin.site.register(model, type(f"Order{pages.__name__}", (OrderTasksMixin, pages), {}))
