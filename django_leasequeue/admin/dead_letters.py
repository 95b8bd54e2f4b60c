"""Dead letters: the list, the story of each, Redrive and Cancel; and those that are alike, counted.

Alike are letters of one task function, with errors that differ in numbers and names.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Min, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from ..models import DeadLetter, counted
from ..policy import RATE_MAX, RATE_MIN
from ..story import VANISHED
from ..transitions import State
from .bounds import FILTERED_MAX, TaskChangeList, UnreadChangeList
from .filters import AgeFilter, ErrorFilter, LostFilter, PathFilter, QueueFilter, TenantFilter
from .task_pages import TaskPagesAdmin
from .timeline import OUTCOMES, Story
from .verbs import CANCEL, REDRIVE, ReasonForm
from .wording import breakable, shortened, to_the_second, two_lines

GROUPS_MAX: Final = 100
STRETCH: Final = timedelta(hours=2)
STRETCHES: Final = 12
BAR_HEIGHT: Final = 20
Group = dict[str, Any]  # as the page shows it: see ``group``


class LettersForm(ReasonForm):
    """``rate`` is in tasks per second, of a redrive."""

    until = forms.DateTimeField(widget=forms.HiddenInput)
    rate = forms.FloatField(
        label=_("At most so many a second (optional)"),
        help_text=_("Empty: all are ready at once. Else one after the other, scheduled."),
        required=False,
        min_value=RATE_MIN,
        max_value=RATE_MAX,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )


class DeadLetterAdmin(TaskPagesAdmin):
    """The tasks that stopped. To limit who sees what, subclass it and override ``tenants_for``."""

    list_display = ("function", "place", "error", "since")
    list_filter = (
        QueueFilter,
        PathFilter,
        ErrorFilter,
        LostFilter,
        AgeFilter,
        TenantFilter,  # the longest comes last
    )
    search_fields = ("task_id", "path", "tenant", "last_error")
    ordering = ("-visible_at", "-seq")
    actions = ("redrive_selected", "cancel_selected")
    verbs = (REDRIVE, CANCEL)
    missing = _("There is no such dead letter.")
    form_class = LettersForm
    until_field = "visible_at"

    def until(self, request: HttpRequest) -> str:
        return self.now(request).isoformat()

    def tells(self, story: Story) -> bool:
        return story.was_dead

    def held(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        """See TaskPagesAdmin."""
        return DeadLetter.objects.using(self.using()).filter(self.dead(request))

    def written_down(self) -> QuerySet[DeadLetter]:
        """See TaskPagesAdmin."""
        return DeadLetter.objects.using(self.using()).filter(state=State.DEAD)

    @admin.display(description=_("last error"), ordering="last_error")
    def error(self, letter: DeadLetter) -> str:
        return shortened(letter.last_error, 120) or str(OUTCOMES[VANISHED])

    @admin.display(description=_("dead since"), ordering="visible_at")
    def since(self, letter: DeadLetter) -> str:
        """When it died, and below that of which attempt."""
        counts = {"attempt": letter.attempt, "max": letter.max_attempts}
        told = ngettext(
            "after %(attempt)d of %(max)d attempt",
            "after %(attempt)d of %(max)d attempts",
            letter.max_attempts,
        )
        return two_lines(to_the_second(letter.visible_at), told % counts)

    def get_urls(self) -> list[URLPattern]:
        return [self.named_path("groups/", "groups", self.groups_view), *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[TaskChangeList]:
        match = request.resolver_match
        by_group = match and match.url_name and match.url_name.endswith("_groups")
        return UnreadChangeList if by_group else super().get_changelist(request, **kwargs)

    def groups_view(self, request: HttpRequest) -> HttpResponse:
        """The letters that are alike, counted; the list's filters apply."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            changelist: Any = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(request.path)
        letters = changelist.queryset
        if not changelist.looked_at:
            letters = changelist.newest(letters, FILTERED_MAX)
        groups = groups_of(letters, self.now(request), changelist)
        return self.page(
            request,
            "groups",
            title=gettext("Dead letters by error"),
            original=gettext("By error"),
            cl=changelist,
            groups=groups[:GROUPS_MAX],
            more=len(groups) > GROUPS_MAX,
            letters=self.url("changelist"),
            verbs=[verb for verb in self.verbs if self.may(request, verb)],
            checkbox=ACTION_CHECKBOX_NAME,
        )

    @admin.action(permissions=["redrive"], description=_("Redrive selected dead letters"))
    def redrive_selected(
        self, request: HttpRequest, letters: QuerySet[DeadLetter]
    ) -> HttpResponse | None:
        return self.ask_of_selected(REDRIVE, request, letters)


def groups_of(letters: QuerySet[Any], now: datetime, changelist: ChangeList) -> list[Group]:
    """The groups of *letters*, the largest first, one more than are to be shown.

    Args:
        changelist: whose filters each group's are added to.
    """
    ends = {"oldest": Min("visible_at"), "newest": Max("visible_at")}
    died = {f"died_{n}": Count("pk", filter=stretch(n, now)) for n in range(STRETCHES)}
    found = counted(letters, "path", "fingerprint", **ends, **died)
    return [group(row, changelist) for row in found[: GROUPS_MAX + 1]]


def stretch(n: int, now: datetime) -> Q:
    """Those that died in the stretch *n* of the last day, from the oldest."""
    end = now - STRETCH * (STRETCHES - 1 - n)
    return Q(visible_at__gt=end - STRETCH, visible_at__lte=end)


def group(row: dict[str, Any], changelist: ChangeList) -> Group:
    """Dead letters of one task function whose last errors have something in common.

    ``trend`` says how many died in each stretch of the last day, the oldest first; ``bars`` are
    place, top and height of each in a picture of 20 by 5.
    """
    trend = [row.pop(f"died_{n}") for n in range(STRETCHES)]
    heights = [-(-BAR_HEIGHT * count // (max(trend) or 1)) for count in trend]
    module, _, function = row["path"].rpartition(".")
    common = row.pop("fingerprint")
    return row | {
        "function": function,
        "module": breakable(module),
        "error": common or str(OUTCOMES[VANISHED]),
        "trend": trend,
        "last_day": sum(trend),
        "bars": [(5 * n, BAR_HEIGHT - height, height) for n, height in enumerate(heights)],
        "query": changelist.get_query_string({"of_task": row["path"], "error": common or ""}),
    }
