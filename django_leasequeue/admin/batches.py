"""What operators did to many tasks at once: who, when, why, how far, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import URLPattern
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from ..batches import ended_since, go_on, items_of, reasons, stayed
from ..models import Batch, DeadLetter, Task
from ..transitions import Kind, State
from .access import ReadOnlyTaskAdmin, positions
from .filters import state_at
from .verbs import SECONDS_AT_ONCE, VERBS, reason_text, told, who
from .wording import shortened, to_the_second

STAYED_MAX: Final = 100
FATES: Final[dict[str, Any]] = {
    Kind.ACKED: pgettext_lazy("tasks", "done"),
    State.DEAD: pgettext_lazy("tasks", "dead again"),
    State.READY: pgettext_lazy("tasks", "ready"),
    State.SCHEDULED: pgettext_lazy("tasks", "scheduled"),
    State.LEASED: pgettext_lazy("tasks", "running"),
    Kind.CANCELLED: pgettext_lazy("tasks", "cancelled"),
    Kind.DROPPED: pgettext_lazy("tasks", "dropped"),
    "": pgettext_lazy("tasks", "gone without a record"),
}


class BatchAdmin(ReadOnlyTaskAdmin):
    """The batches; who may not see all of them sees their own."""

    list_display = ("when", "what", "by", "queues", "selected", "progress", "why")
    list_display_links = ("when",)
    ordering = ("-pk",)
    sortable_by = ()

    class Media:
        js = ("leasequeue/batch.js",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        acts = self.has_redrive_permission(request) or self.has_cancel_permission(request)
        return acts or super().has_view_permission(request, obj)

    def allowed(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """All of them, or the user's own: a batch may be of several tenants' tasks."""
        here = rows.using(self.using())
        unlimited = self.tenants_for(request) is None
        if unlimited and super().has_view_permission(request):
            return here
        return here.filter(by=who(request.user))

    @admin.display(description=_("at"))
    def when(self, batch: Batch) -> str:
        return to_the_second(batch.at)

    @admin.display(description=_("what"))
    def what(self, batch: Batch) -> str:
        return str(VERBS[batch.verb].button)

    @admin.display(description=_("selection"))
    def selected(self, batch: Batch) -> str:
        return shortened(batch.chosen, 120)

    @admin.display(description=_("reason"))
    def why(self, batch: Batch) -> str:
        return shortened(batch.reason, 120)

    @admin.display(description=_("moved"))
    def progress(self, batch: Batch) -> str:
        moved = gettext("%(moved)d of %(total)d") % {"moved": batch.moved, "total": batch.total}
        return moved if batch.done_at else f"{moved} …"

    def get_urls(self) -> list[URLPattern]:
        own = self.named_path("<path:object_id>/go-on/", "go_on", self.go_on_view)
        return [own, *super().get_urls()]

    def find(self, request: HttpRequest, object_id: str) -> Batch | None:
        if not self.has_view_permission(request):
            raise PermissionDenied
        number = positions([unquote(object_id)])
        batch: Batch | None = self.get_queryset(request).filter(pk__in=number).first()
        return batch

    def go_on_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Deal with more of a batch; the page asks for it again and again."""
        batch = self.find(request, object_id)
        allowed = batch and getattr(self, f"has_{batch.verb}_permission")(request)
        if not batch or not allowed:
            raise PermissionDenied
        if request.method == "POST":  # else a login came between
            batch = go_on(batch, seconds=SECONDS_AT_ONCE)
        if "application/json" not in request.headers.get("Accept", ""):
            return HttpResponseRedirect(self.url("change", batch.pk))
        return JsonResponse({"passed": batch.passed, "done": batch.done_at is not None})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """One batch: its record, how far it is, and where its tasks are by now."""
        batch = self.find(request, object_id)
        if batch is None:
            self.message_user(request, gettext("There is no such batch."), messages.WARNING)
            return HttpResponseRedirect(self.url("changelist"))
        verb = VERBS[batch.verb]
        return self.page(
            request,
            "batch",
            title=verb.title,
            subtitle=to_the_second(batch.at),
            original=f"{verb.button} {to_the_second(batch.at)}",
            batch=batch,
            verb=verb,
            told=told(batch),
            go_on=self.url("go_on", batch.pk),
            may_go_on=getattr(self, f"has_{batch.verb}_permission")(request),
            fates=self.fates(request, batch) if batch.verb == "redrive" else (),
            reasons=[(reason_text(why), n) for why, n in reasons(batch).most_common(STAYED_MAX)],
            stayed=[
                (name, reason_text(why), self.link(request, DeadLetter, "change", number))
                for name, why, number in stayed(batch, STAYED_MAX)
            ],
            stayed_max=STAYED_MAX,
        )

    def fates(self, request: HttpRequest, batch: Batch) -> Sequence[tuple[Any, int]]:
        """Where the tasks that it moved are by now, and how many each."""
        moved = items_of(batch).filter(outcome="").values("seq")
        held = Task.objects.using(batch.using).filter(pk__in=moved).order_by()
        standing = held.annotate(standing=state_at(self.now(request))).values_list("standing")
        counts: dict[str, int] = dict(standing.annotate(Count("pk")))
        if sum(counts.values()) < batch.moved:
            counts |= ended_since(batch)
        counts[""] = max(0, batch.moved - sum(counts.values()))
        return [(fate, counts[kind]) for kind, fate in FATES.items() if counts.get(kind)]
