"""Dead letters: the list, the story of each, Redrive and Cancel."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, gettext_lazy as _

from ..models import DeadLetter, dead_at
from ..story import VANISHED
from .filters import ErrorFilter, PathFilter, QueueFilter, TenantFilter
from .task_pages import TaskPagesAdmin
from .timeline import Story
from .verbs import CANCEL, REDRIVE, SelectionForm
from .wording import shortened, to_the_second


class LettersForm(SelectionForm):
    until = forms.DateTimeField(widget=forms.HiddenInput)


class DeadLetterAdmin(TaskPagesAdmin):
    """The tasks that stopped. To limit who sees what, subclass it and override ``tenants_for``."""

    list_display = ("function", "place", "attempts", "error", "since")
    list_filter = (QueueFilter, TenantFilter, PathFilter, ErrorFilter)
    search_fields = ("task_id", "path", "tenant", "last_error")
    ordering = ("-visible_at", "-seq")
    actions = ("redrive_selected", "cancel_selected")
    verbs = (REDRIVE, CANCEL)
    form_class = LettersForm
    until_field = "visible_at"

    def until(self, request: HttpRequest) -> str:
        return self.now(request).isoformat()

    def tells(self, story: Story) -> bool:
        return story.was_dead

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(dead_at(self.now(request)))

    @admin.display(description=_("last error"), ordering="last_error")
    def error(self, letter: DeadLetter) -> str:
        return shortened(letter.last_error, 120) or gettext(VANISHED)

    @admin.display(description=_("dead since"), ordering="visible_at")
    def since(self, letter: DeadLetter) -> str:
        return to_the_second(letter.visible_at)

    @admin.action(permissions=["redrive"], description=_("Redrive selected dead letters"))
    def redrive_selected(
        self, request: HttpRequest, letters: QuerySet[DeadLetter]
    ) -> HttpResponse | None:
        return self.ask_of_selected(REDRIVE, request, letters)
