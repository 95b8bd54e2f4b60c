"""What the lists can be narrowed by: the values that occur in them, states, kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import Case, F, QuerySet, TextField, Value, When
from django.db.models.functions import Left, StrIndex
from django.db.models.lookups import Exact
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter
from ..story import VANISHED
from ..transitions import Kind, State

VALUES_MAX: Final = 100  # a filter that must be scrolled for ever helps nobody; the search does
READ_MAX: Final = 10_000  # rows, the newest, whose values are offered
COLON: Final = StrIndex("last_error", Value(":"))
STATES: Final[dict[str, Any]] = {
    State.READY: _("ready"),
    State.SCHEDULED: _("scheduled"),
    State.LEASED: _("leased"),
}


class ValueFilter(admin.SimpleListFilter):
    """The values of one column or expression, as far as this user may see them."""

    parameter_name: str
    by: ClassVar[Any]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = sorted(values(request, model_admin)[self.parameter_name])[:VALUES_MAX]
        chosen = self.value()
        if chosen is not None and chosen not in found:
            found.append(chosen)  # its last row has just left the list, or is an old one
        return [(value, value or _("(none)")) for value in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(Exact(self.by, self.value()))

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1 or self.value() is not None


def values(request: HttpRequest, model_admin: Any) -> dict[str, set[str]]:
    """What each of the list's filters finds in its newest rows: one look for all of them."""
    known = vars(request)
    if "leasequeue_values" not in known:
        filters = [f for f in model_admin.list_filter if issubclass(f, ValueFilter)]
        columns = {f.parameter_name: f.by for f in filters}
        rows = model_admin.get_queryset(request).order_by("-pk")
        read = list(rows.values_list(*columns.values())[:READ_MAX])
        found = map(set, zip(*read, strict=True)) if read else (set() for _ in columns)
        known["leasequeue_values"] = dict(zip(columns, found, strict=True))
    return known["leasequeue_values"]  # type: ignore[no-any-return]


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


class StateFilter(admin.SimpleListFilter):
    """Where a task stands by the clock; the dead ones stand on their own page."""

    title, parameter_name = _("state"), "state"

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        model_admin = args[-1]
        self.letters = model_admin.link(request, DeadLetter, "changelist")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(STATES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(standing=self.value()) if self.value() else queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        yield from super().choices(changelist)
        if self.letters:
            yield {"selected": False, "query_string": self.letters, "display": _("dead letters")}


class KindFilter(admin.SimpleListFilter):
    title, parameter_name = _("kind"), "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(kind), str(kind)) for kind in Kind]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset
