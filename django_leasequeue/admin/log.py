"""The log of transitions: the list, and each row. Nothing here can be edited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext, gettext_lazy as _

from ..models import Task, TaskTransition
from ..transitions import Kind
from ..validation import as_life
from .access import ReadOnlyTaskAdmin, of_own_id, positions
from .bounds import BoundedPaginator, last_positions
from .drilldown import LogChangeList
from .filters import KindFilter, QueueFilter
from .timeline import pretty, pretty_value
from .wording import short_id, shortened, to_the_second, two_lines

LIVES_MAX: Final = 1000  # of one id, the newest
SECRET: Final = frozenset({"details", "result"})
FAILURES: Final = (Kind.RETRIED, Kind.DEAD, Kind.DROPPED)


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
