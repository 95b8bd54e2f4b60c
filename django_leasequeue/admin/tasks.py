"""Held tasks that wait or run: the list, the story of each, and Cancel."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import Task, TaskTransition
from ..transitions import State
from .filters import STATES, PathFilter, QueueFilter, StateFilter, TenantFilter
from .task_pages import TaskPagesAdmin
from .verbs import CANCEL, ReasonForm
from .wording import to_the_second, two_lines

WHEN: Final[dict[str, Any]] = {
    State.READY: _("since %s"),
    State.SCHEDULED: _("due %s"),
    State.LEASED: _("until %s"),
}


class TasksForm(ReasonForm):
    until = forms.IntegerField(widget=forms.HiddenInput)


class TaskAdmin(TaskPagesAdmin):
    """Ready, scheduled and leased tasks, as the clock has them; the dead have their own pages."""

    list_display = ("function", "place", "standing", "attempts")
    list_filter = (StateFilter, QueueFilter, PathFilter, TenantFilter)
    search_fields = ("task_id", "path", "tenant", "worker")
    ordering = ("-seq",)
    actions = ("cancel_selected",)
    verbs = (CANCEL,)
    form_class = TasksForm
    until_field = "seq"

    def until(self, request: HttpRequest) -> int:
        """The log's end: a task's number is its place there, and later ones get higher ones."""
        log = TaskTransition.objects.using(self.using()).order_by("-pk")
        return log.values_list("pk", flat=True).first() or 0

    def held(self, request: HttpRequest) -> QuerySet[Task]:
        """See TaskPagesAdmin."""
        return Task.objects.using(self.using()).exclude(self.dead(request))

    def written_down(self) -> QuerySet[Task]:
        """See TaskPagesAdmin."""
        return Task.objects.using(self.using()).exclude(state=State.DEAD)

    @admin.display(description=_("state"), ordering="visible_at")
    def standing(self, task: Task) -> str:
        """Where it stands since or until when, and who has it now: who had it once is history."""
        state: State = task.standing  # type: ignore[attr-defined]
        worker = task.worker if state == State.LEASED else ""
        return two_lines(STATES[state], WHEN[state] % to_the_second(task.visible_at), worker)

    @admin.display(description=_("attempts"), ordering="attempt")
    def attempts(self, task: Task) -> str:
        return f"{task.attempt} / {task.max_attempts}"
