"""What the lists can be narrowed by: the values that occur in them, states, kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import Case, CharField, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact
from django.http import HttpRequest
from django.utils.formats import number_format
from django.utils.text import get_text_list
from django.utils.translation import gettext, gettext_lazy as _

from ..models import DeadLetter, Task, dead_at
from ..overview.counting import queues
from ..story import VANISHED
from ..transitions import Kind, State
from .timeline import OUTCOMES
from .wording import BREAK, breakable

VALUES_MAX: Final = 100  # a filter that must be scrolled for ever helps nobody; the search does
DUE_MAX: Final = 10_000  # that come due by time, looked through for what is leased
READ_MAX: Final = 2_000  # rows, the newest, whose values are offered
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
        rows = model_admin.some(request).order_by(*model_admin.get_ordering(request))
        read = list(rows.values_list(*columns.values())[:READ_MAX])
        found = {name: {row[n] for row in read} for n, name in enumerate(columns)}
        known["leasequeue_values"] = found
    return known["leasequeue_values"]  # type: ignore[no-any-return]


class QueueFilter(ValueFilter):
    title, parameter_name, by = _("queue"), "in_queue", F("queue")


class TenantFilter(ValueFilter):
    title, parameter_name, by = _("tenant"), "of_tenant", F("tenant")


class PathFilter(ValueFilter):
    title, parameter_name, by = _("task"), "of_task", F("path")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = super().lookups(request, model_admin)
        return [(path, breakable(shown) if path else shown) for path, shown in found]


class ErrorFilter(ValueFilter):
    """What the last error has in common with others of its kind."""

    title, parameter_name = _("error"), "error"
    by = Coalesce("fingerprint", Value(""))

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found = super().lookups(request, model_admin)
        return [(value, shown if value else OUTCOMES[VANISHED]) for value, shown in found]


class LostFilter(admin.SimpleListFilter):
    """Whether any attempt said why, or every one just vanished."""

    title, parameter_name = _("cause"), "how"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("failed", _("failed")), ("lost", _("only ever lost"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("failed", "lost"):
            return queryset
        lost = self.value() == "lost"
        return queryset.filter(last_error="") if lost else queryset.exclude(last_error="")


class AgeFilter(admin.SimpleListFilter):
    """How long they have been dead."""

    title, parameter_name = _("age"), "dead"
    spans: ClassVar = {
        "hour": (_("the last hour"), timedelta(hours=1)),
        "day": (_("the last 24 hours"), timedelta(days=1)),
        "week": (_("the last 7 days"), timedelta(days=7)),
    }

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        self.now = args[-1].now(request)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        older = ("older", _("longer than 7 days"))
        return [*((name, told) for name, (told, _span) in self.spans.items()), older]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value() or ""
        if chosen == "older":
            return queryset.filter(visible_at__lte=self.now - self.spans["week"][1])
        if chosen not in self.spans:
            return queryset
        return queryset.filter(visible_at__gt=self.now - self.spans[chosen][1])


def told(changelist: Any) -> str:
    """In words, what a list is narrowed by."""
    words = [
        f"{spec.title}: {choice['display']}"
        for spec in changelist.filter_specs
        if spec.used_parameters
        for choice in spec.choices(changelist)
        if choice["selected"]
    ]
    if changelist.query:
        words.append(f"“{changelist.query}”")
    return "; ".join(words).replace(BREAK, "")


class StateFilter(admin.SimpleListFilter):
    """Where a task stands by the clock; the dead ones stand on their own page."""

    title, parameter_name = _("state"), "state"
    notes: Sequence[str] = ()

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        model_admin = args[-1]
        self.letters = model_admin.link(request, DeadLetter, "changelist")
        self.now = model_admin.now(request)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(STATES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        if self.value() not in STATES:
            return queryset.none()
        if self.value() == State.LEASED:
            vars(request)["leasequeue_found"] = True
            found, cut = leased(queryset.db, self.now, request.GET.get("in_queue"))
            told = gettext("Looked for among the first %s of each queue that come due by time.")
            self.notes = [told % number_format(cut)] if cut else []
            return queryset.filter(pk__in=found)
        return queryset.filter(standing_at(self.value(), self.now))

    def choices(self, changelist: Any) -> Iterator[Any]:
        every, *states = super().choices(changelist)
        yield every | {"display": get_text_list([*STATES.values()])}  # not all: the dead are away
        yield from states
        if self.letters:
            yield {"selected": False, "query_string": self.letters, "display": _("dead letters")}


def leased(using: str, now: datetime, queue: str | None) -> tuple[list[int], int]:
    """The numbers of what is leased, in *queue* or all of them.

    They have no index of their own, which every claim would pay for. But a queue's leases end
    soon, compared with what is scheduled: they are near the front of what comes due by time.

    Returns:
        The numbers, and how many of a queue were looked at, where there were more; else 0.
    """
    names = [queue] if queue else queues(using)
    few = DUE_MAX // max(1, len(names))
    tasks = Task.objects.using(using).filter(lane="later", visible_at__gt=now)
    found: list[int] = []
    cut = 0
    for name in names:
        first = tasks.filter(queue=name).order_by("visible_at", "seq")
        rows = list(first.values_list("pk", "state")[: few + 1])
        cut = few if len(rows) > few else cut
        found += [number for number, state in rows if state == State.LEASED]
    return found, cut


def standing_at(state: str | None, now: datetime) -> Q:
    """Which of the tasks that aren't dead stand so at *now*, in words that the indexes have."""
    late = Q(lane="later", visible_at__lte=now)
    return {
        State.READY: Q(lane="now") | late,
        State.SCHEDULED: Q(lane="later", state=State.READY, visible_at__gt=now),
    }[State(state or "")]


def state_at(now: datetime) -> Case:
    """The state of a task at *now*, whether or not anybody wrote it down."""
    return Case(
        When(dead_at(now), then=Value(State.DEAD)),
        When(Q(state=State.LEASED, visible_at__lte=now), then=Value(State.READY)),
        When(Q(state=State.READY, visible_at__gt=now), then=Value(State.SCHEDULED)),
        default=F("state"),
        output_field=CharField(),
    )


class KindFilter(admin.SimpleListFilter):
    title, parameter_name = _("kind"), "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(kind), str(kind)) for kind in Kind]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset
