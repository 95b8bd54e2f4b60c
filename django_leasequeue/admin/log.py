"""The log of transitions: the list, and each row. Nothing here can be edited.

Django's own drill-down groups all rows by day, and there is no index on ``at`` that could help: it
would cost every move. So the days between the log's ends are offered, whether or not something
happened on each, and a day's rows are those between two positions that halving finds. What the
clock did is dated when it did it, and stands where somebody wrote it down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _

from ..fields import Instant
from ..models import Task, TaskTransition
from ..overview.rates import position_at
from ..transitions import Kind
from ..validation import as_life
from .access import ReadOnlyTaskAdmin, of_own_id, positions
from .bounds import BoundedChangeList, BoundedPaginator, last_positions
from .filters import KindFilter, QueueFilter
from .timeline import pretty, pretty_value
from .wording import local, short_id, shortened, to_the_second, two_lines

LIVES_MAX: Final = 1000  # of one id, the newest
SECRET: Final = frozenset({"details", "result"})
FAILURES: Final = (Kind.RETRIED, Kind.DEAD, Kind.DROPPED)
LEVELS: Final = ("at__year", "at__month", "at__day")
LOOSE: Final = frozenset({"kind", "in_queue"})  # filters
FORMATS: Final = ("Y", "YEAR_MONTH_FORMAT", "MONTH_DAY_FORMAT")


class TransitionAdmin(ReadOnlyTaskAdmin):
    """Everything that happened to tasks, the newest first."""

    list_display = ("when", "move", "task", "delivery")
    list_filter = (KindFilter, QueueFilter)
    date_hierarchy = "at"
    search_fields = ("life", "task_id", "worker")
    search_help_text = _("A life, an id or the name of a worker, in full")
    ordering = ("-id",)
    sortable_by = ()  # the order of the log is its position; any other would sort all of it
    paginator = BoundedPaginator
    list_max_show_all = 0

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LogChangeList]:
        return LogChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows without what may be large, but with the id that only a life's first row has."""
        first = TaskTransition.objects.filter(life=OuterRef("life")).order_by("id")
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.annotate(
            known_id=Subquery(first.values("task_id")[:1]),
            failure=Case(When(kind__in=FAILURES, then=F("data"))),
        )
        return rows.defer("payload", "data")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Whole words only: the log has an index for lives, and none for a part of a name."""
        term = search_term.strip()
        if not term:
            return queryset, False
        lives = vars(request)["leasequeue_lives"] = self.lives(request, term)
        found = queryset.filter(life__in=lives) if lives else queryset.filter(worker=term)
        return found, False

    def lives(self, request: HttpRequest, term: str) -> Sequence[UUID]:
        """The lives that *term* names: it is one, or the id of some, held or lately enqueued."""
        log = self.allowed(request, TaskTransition.objects.all()).order_by("-pk")
        life = as_life(term)
        if life and log.filter(life=life).exists():
            return [life]
        tasks = self.allowed(request, Task.objects.all())
        held = list(of_own_id(tasks, term).values_list("life", flat=True)[:LIVES_MAX])
        late = last_positions(log, log)[0].filter(task_id=term)
        return [*held, *late.values_list("life", flat=True)[:LIVES_MAX]]

    @admin.display(description=_("at"))
    def when(self, row: TaskTransition) -> str:
        return two_lines(to_the_second(row.at), gettext("position %d") % row.pk)

    @admin.display(description=_("kind"))
    def move(self, row: TaskTransition) -> str:
        """The kind, below it why, where it was a failure."""
        failure = json.loads(row.failure or "{}")  # type: ignore[attr-defined]
        why: str = failure.get("error", {}).get("summary", "")
        return two_lines(row.kind, shortened(why, 120))

    @admin.display(description=_("task"))
    def task(self, row: TaskTransition) -> str:
        id: str = row.known_id or ""  # type: ignore[attr-defined]
        return two_lines(short_id(id, row), row.queue, row.tenant, full=id)

    @admin.display(description=_("attempt"))
    def delivery(self, row: TaskTransition) -> str:
        """Which attempt, and below it its token and who made it."""
        if not row.token:
            return ""
        return two_lines(row.attempt, gettext("token %d") % row.token, row.worker)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """One row of the log, in full as far as the user may see it."""
        if request.method == "POST" or not self.has_view_permission(request):
            raise PermissionDenied
        number = positions([unquote(object_id)])
        row = self.get_queryset(request).defer(None).filter(pk__in=number).first()
        if row is None:
            told = gettext("There is no such row in the log.")
            self.message_user(request, told, messages.WARNING)
            return HttpResponseRedirect(self.url("changelist"))
        may_view_payload = self.has_view_payload_permission(request)
        facts = dict(row.transition.facts)
        error = facts.pop("error", {})
        hidden = frozenset() if may_view_payload else SECRET
        shown = {key: value for key, value in facts.items() if key not in hidden}
        return self.page(
            request,
            "transition",
            title=gettext("Transition"),
            subtitle=f"{row.pk} {row.kind}",
            original=str(row.pk),
            row=row,
            error=error,
            error_text=error.get("traceback") or error.get("message", ""),
            data=pretty_value(shown) if shown else "",
            payload=pretty(row.payload) if may_view_payload else "",
            is_hidden=not may_view_payload and (row.payload is not None or len(shown) < len(facts)),
            task=self.task_page(request, row),
            log=self.url("changelist"),
        )

    def task_page(self, request: HttpRequest, row: TaskTransition) -> str:
        """Address of the task's page: its number is its first row's position."""
        rows = TaskTransition.objects.using(self.using()).filter(life=row.life)
        first = rows.filter(kind=Kind.ENQUEUED).only("pk").first()
        return self.link(request, Task, "change", first.pk) if first else ""


class LogChangeList(BoundedChangeList):
    """A list of transitions whose dates are stretches of the log."""

    def get_filters(self, request: Any) -> Any:
        levels = [self.params.get(level, "1") for level in LEVELS]
        if not all(level.isdecimal() and len(level) <= 4 for level in levels):
            raise IncorrectLookupParameters
        found = super().get_filters(request)
        lookups: dict[str, Any] = found[2]
        for end in ("gte", "lt"):
            moment, *_rest = lookups.get(f"at__{end}", [None])
            if isinstance(moment, datetime):
                del lookups[f"at__{end}"]
                log = TaskTransition.objects.using(self.root_queryset.db)
                lookups[f"pk__{end}"] = [position_at(log, Instant.to_utc(moment))]
        self.stretch = {name: values[0] for name, values in lookups.items() if name[:2] == "pk"}
        return found

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet[Any]:
        """What no index helps to find is looked for near the end of the log, or of the date."""
        rows = super().get_queryset(request, exclude_parameters)
        lives = vars(request).get("leasequeue_lives")
        limited = self.model_admin.tenants_for(request) is not None
        if lives or not (self.query or limited or LOOSE & self.params.keys()):
            return rows
        log = TaskTransition.objects.using(rows.db).filter(**self.stretch)
        bounded, self.looked_at = last_positions(rows, log)
        return bounded

    def notes(self) -> Iterator[str]:
        """What the page doesn't show, and how to get there."""
        told = list(super().notes())
        yield from told
        if told:
            yield gettext("Choose a date to look further back.")

    def dates(self) -> dict[str, Any]:
        """What Django's template for drill-downs shows: the years, months or days to choose."""
        chosen = tuple(int(self.params[level]) for level in LEVELS if level in self.params)
        days = [day for day in self.days() if parts(day)[: len(chosen)] == chosen]
        depth = next((n for n in (1, 2) if len({parts(day)[:n] for day in days}) > 1), 3)
        depth = min(max(depth, len(chosen) + 1), 3)
        keys = sorted({parts(day)[:depth] for day in days})
        return {
            "back": self.choice(chosen[:-1]) if chosen else None,
            "choices": [self.choice(key) for key in keys],
        }

    def days(self) -> list[date]:
        """Every day from the first to the last row that the user may see."""
        rows = self.root_queryset.values_list("at", flat=True)
        ends = [*rows.order_by("pk")[:1], *rows.order_by("-pk")[:1]]
        if not ends:
            return []
        first, last = sorted(local(end).date() for end in ends)
        return [first + timedelta(days=n) for n in range((last - first).days + 1)]

    def choice(self, key: tuple[int, ...]) -> dict[str, str]:
        link = self.get_query_string(dict(zip(LEVELS, key, strict=False)), ["at__"])
        if not key:
            return {"link": link, "title": gettext("All dates")}
        day = date(*(*key, 1, 1)[:3])
        return {"link": link, "title": capfirst(date_format(day, FORMATS[len(key) - 1]))}


def parts(day: date) -> tuple[int, int, int]:
    return day.year, day.month, day.day
