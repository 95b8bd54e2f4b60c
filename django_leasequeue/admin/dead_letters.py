"""Dead letters: the list, the story of each, and Redrive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, gettext_lazy as _

from ..models import DeadLetter, TaskTransition, dead_at
from ..story import VANISHED
from ..transitions import Kind
from .access import ReadOnlyTaskAdmin
from .filters import ErrorFilter, PathFilter, QueueFilter, TenantFilter
from .importable import is_gone
from .redriving import TOLD_MAX, RedriveForm, redrive
from .timeline import Story, story_of


class DeadLetterAdmin(ReadOnlyTaskAdmin):
    """The tasks that stopped. To limit who sees what, subclass it and override ``tenants_for``."""

    list_display = ("queue", "function", "task_id", "tenant", "attempts", "error", "since")
    list_display_links = ("function",)
    list_filter = (QueueFilter, TenantFilter, PathFilter, ErrorFilter)
    search_fields = ("task_id", "path", "tenant", "last_error", "life")
    ordering = ("-visible_at", "-seq")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count for each value would be a scan for each
    actions = ("redrive_selected",)

    class Media:
        css: ClassVar = {"all": ["leasequeue/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        return super().get_queryset(request).filter(dead_at(self.now(request)))

    @admin.display(description=_("task"), ordering="path")
    def function(self, letter: DeadLetter) -> str:
        return letter.path or letter.task_id

    @admin.display(description=_("attempts"), ordering="attempt")
    def attempts(self, letter: DeadLetter) -> str:
        return f"{letter.attempt} / {letter.max_attempts}"

    @admin.display(description=_("last error"), ordering="last_error")
    def error(self, letter: DeadLetter) -> str:
        return letter.last_error or gettext(VANISHED)

    @admin.display(description=_("dead since"), ordering="visible_at")
    def since(self, letter: DeadLetter) -> datetime:
        moment: datetime = letter.visible_at
        return moment

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.redrive_view)
        name = "leasequeue_deadletter_redrive"
        return [path("<path:object_id>/redrive/", view, name=name), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Tell a dead letter's story; also after its redrive, when it stands elsewhere."""
        if request.method == "POST" or not self.has_view_permission(request):
            raise PermissionDenied
        story = self.story(request, unquote(object_id))
        if story is None or not story.was_dead:
            self.message_user(request, gettext("There is no such dead letter."), messages.WARNING)
            return HttpResponseRedirect(self.url("changelist"))
        name = f"{story.task.queue}/{story.task.id}"
        return self.page(
            request,
            "story",
            title=gettext("Dead letter"),
            subtitle=name,
            original=name,
            story=story,
            is_gone=bool(story.task.path) and is_gone(story.task.path),
            redrive_url=self.url("redrive", object_id),
            may_redrive=self.has_redrive_permission(request),
            may_view_payload=self.has_view_payload_permission(request),
        )

    def story(self, request: HttpRequest, number: str) -> Story | None:
        """The story of the task *number*, held or not; None where the user has no such task."""
        born = self.enqueued(request, [number]).first()
        if born is None:
            return None
        held, history = self.store.find(born.life), self.store.history([born.life])
        return story_of(held, history, self.now(request))

    def enqueued(self, request: HttpRequest, numbers: list[str]) -> QuerySet[TaskTransition]:
        """The beginnings of those tasks: a task's number is its first row's place in the log."""
        known = [number for number in numbers if number.isdecimal() and len(number) < 20]
        beginnings = TaskTransition.objects.filter(kind=Kind.ENQUEUED, pk__in=known)
        return self.allowed(request, beginnings)

    @admin.action(permissions=["redrive"], description=_("Redrive selected dead letters"))
    def redrive_selected(
        self, request: HttpRequest, letters: QuerySet[DeadLetter]
    ) -> HttpResponse | None:
        """Ask first; then hand the selection to the queue, which knows the rules."""
        back = request.get_full_path()
        if request.POST.get("select_across") == "1":
            return self.redrive(request, letters, back=back, across=True)
        numbers = request.POST.getlist(ACTION_CHECKBOX_NAME)
        return self.redrive_chosen(request, numbers, back=back)

    def redrive_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The same for the one letter of a detail page."""
        if not (self.has_view_permission(request) and self.has_redrive_permission(request)):
            raise PermissionDenied
        back = self.url("change", object_id)
        asked = self.redrive_chosen(request, [unquote(object_id)], back=back)
        return asked or HttpResponseRedirect(back)

    def redrive_chosen(
        self, request: HttpRequest, numbers: list[str], *, back: str
    ) -> HttpResponse | None:
        """Redrive the tasks of those numbers, wherever they stand by now: the page may be old."""
        beginnings = list(self.enqueued(request, numbers))
        chosen = DeadLetter.objects.filter(pk__in=[born.pk for born in beginnings])
        letters = self.allowed(request, chosen)
        held = set(letters.values_list("pk", flat=True))
        left = [
            (f"{born.queue}/{born.task_id}", gettext("it has left the queue"))
            for born in beginnings
            if born.pk not in held
        ]
        return self.redrive(request, letters, back=back, left=left)

    def redrive(
        self,
        request: HttpRequest,
        letters: QuerySet[DeadLetter],
        *,
        back: str,
        across: bool = False,
        left: Sequence[tuple[str, str]] = (),
    ) -> HttpResponse | None:
        """Show the confirmation page, or, confirmed, redrive and say what came of it."""
        confirmed = request.POST if "confirmed" in request.POST else None
        form = RedriveForm(confirmed, initial={"as_of": self.now(request).isoformat()})
        if not form.is_valid():
            return self.confirmation(request, letters, form=form, back=back, across=across)
        if across:
            letters = letters.filter(visible_at__lte=form.cleaned_data["as_of"])
        outcome = redrive(letters, user=request.user, reason=form.cleaned_data["reason"])
        outcome.skipped += left
        level = messages.WARNING if outcome.skipped else messages.SUCCESS
        self.message_user(request, str(outcome), level)
        return None

    def confirmation(
        self,
        request: HttpRequest,
        letters: QuerySet[DeadLetter],
        *,
        form: RedriveForm,
        back: str,
        across: bool,
    ) -> HttpResponse:
        """Say what will happen. A selection across pages is carried as such, not letter by letter:
        Django refuses forms of more than 1000 fields."""
        dead = letters.filter(dead_at(self.now(request)))
        count = dead.count()
        numbers = request.POST.getlist(ACTION_CHECKBOX_NAME)
        return self.page(
            request,
            "redrive",
            title=gettext("Redrive dead letters"),
            original=gettext("Redrive"),
            form=form,
            back=back,
            across=across,
            numbers=numbers[:1] if across else numbers,
            checkbox=ACTION_CHECKBOX_NAME,
            count=count,
            queues=dead.order_by("queue").values("queue").annotate(count=Count("pk")),
            letters=dead.order_by("-visible_at", "-seq")[:TOLD_MAX],
            more=max(0, count - TOLD_MAX),
        )

    def page(self, request: HttpRequest, name: str, **context: Any) -> HttpResponse:
        shared = self.admin_site.each_context(request) | {
            "opts": self.opts,
            "media": self.media,
            "has_view_permission": True,
        }
        template = f"admin/leasequeue/deadletter/{name}.html"
        return TemplateResponse(request, template, shared | context)

    def url(self, name: str, *args: str) -> str:
        view = f"{self.admin_site.name}:leasequeue_deadletter_{name}"
        return reverse(view, args=args, current_app=self.admin_site.name)
