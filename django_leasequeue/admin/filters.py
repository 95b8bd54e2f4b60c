"""What a list of tasks can be narrowed by: the values that occur in it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import Case, F, QuerySet, TextField, Value, When
from django.db.models.functions import Left, StrIndex
from django.db.models.lookups import Exact
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..story import VANISHED

VALUES_MAX: Final = 100  # a filter that must be scrolled for ever helps nobody; the search does
COLON: Final = StrIndex("last_error", Value(":"))


class ValueFilter(admin.SimpleListFilter):
    """The values of one column or expression, as far as this user may see them."""

    by: ClassVar[Any]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        rows = model_admin.get_queryset(request).values_list(self.by, flat=True)
        found = list(rows.distinct().order_by(self.by)[:VALUES_MAX])
        if self.value() not in (None, *found):
            found.append(self.value())  # its last letter has just been redriven
        return [(value, value or _("(none)")) for value in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(Exact(self.by, self.value()))

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1 or self.value() is not None


class QueueFilter(ValueFilter):
    title, parameter_name, by = _("queue"), "in_queue", F("queue")


class TenantFilter(ValueFilter):
    title, parameter_name, by = _("tenant"), "of_tenant", F("tenant")


class PathFilter(ValueFilter):
    title, parameter_name, by = _("task"), "of_task", F("path")


class ErrorFilter(ValueFilter):
    """The type of the last error: what its one line says before the colon."""

    title, parameter_name = _("last error"), "error_type"
    by = Case(
        When(last_error="", then=Value(VANISHED)),
        When(last_error__contains=":", then=Left("last_error", COLON - 1)),
        default="last_error",
        output_field=TextField(),
    )
