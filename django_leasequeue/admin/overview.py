"""How all queues are doing, on one page: what is wrong, why, and the button that stops it.

Server-rendered, the plots too: it works without scripts, and nothing comes from elsewhere. A small
script of our own renews it in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _

from ..models import DeadLetter, Pause, Task
from ..overview import DAY, HOUR, Overview, QueueView, Verdict, overview
from ..overview.counting import Counts
from ..overview.rates import WHAT, Rates
from ..overview.verdicts import RECENT_SECONDS
from ..overview.wording import number, span
from ..queue import Queue
from ..registry import WorkerFacts
from ..stores.pauses import GATE
from ..validation import CHARACTERS_MAX
from .access import ReadOnlyTaskAdmin
from .verbs import ReasonForm, who
from .wording import to_the_second, two_lines

WIDTH: Final = 180
HEIGHT: Final = 28
TENANTS_MAX: Final = 50
REFRESH_SECONDS: Final = 10
NAMES: Final = {  # in the order in which they are shown
    Verdict.STUCK: _("Stuck"),
    Verdict.BEHIND: _("Falling behind"),
    Verdict.CATCHING_UP: _("Catching up"),
    Verdict.PAUSED: _("Paused"),
    Verdict.HEALTHY: _("Healthy"),
}
STANDINGS: Final = {  # and the filter of the list of tasks; the dead have a list of their own
    "visible": (_("Visible"), "ready"),
    "scheduled": (_("Scheduled"), "scheduled"),
    "leased": (_("Leased"), "leased"),
    "dead": (_("Dead"), ""),
}
TITLES: Final = {
    "arrivals": _("Arrivals"),
    "completions": _("Completions"),
    "failures": _("Failures"),
    "lapses": _("Lapses"),
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One queue on the page."""

    view: QueueView
    name: Any
    oldest: str
    tenants: Sequence[Any]
    more_tenants: int
    counts: Sequence[tuple[Any, str, str, str]]
    lines: Sequence[dict[str, Any]]
    exact: bool
    pause: str

    @property
    def css(self) -> str:
        return str(self.view.verdict).replace(" ", "-")

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to show of it."""
        return self.view.is_blank and self.view.verdict is Verdict.HEALTHY


class OverviewAdmin(ReadOnlyTaskAdmin):
    """The page of all queues. To limit whose tasks are counted, override ``tenants_for``."""

    class Media:
        js = ("leasequeue/overview.js",)

    def get_urls(self) -> list[URLPattern]:
        """The page and its two questions: there is nothing behind it to look at one by one."""
        asks = [
            self.named_path(f"{verb}/", verb, partial(self.switch_view, verb))
            for verb in ("pause", "resume")
        ]
        return asks + [url for url in super().get_urls() if str(url.name).endswith("_changelist")]

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """A pause stops all tenants' tasks: not for those who may see some of them only."""
        allowed = request.user.has_perm("leasequeue.pause_queue")
        return allowed and self.tenants_for(request) is None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        seen = self.seen(request)
        every = sorted(
            (self.panel(request, seen, view) for view in seen.queues),
            key=lambda panel: ([*NAMES].index(panel.view.verdict), panel.view.name),
        )
        panels = [panel for panel in every if not panel.is_idle]
        answer = self.page(
            request,
            "overview",
            title=_("Queues"),
            original=_("Overview"),
            panels=panels,
            idle=[panel for panel in every if panel.is_idle],
            troubles=[panel for panel in panels if panel.view.verdict is not Verdict.HEALTHY],
            workers=[staff(worker, seen) for worker in seen.workers],
            now=seen.now,
            width=WIDTH,
            height=HEIGHT,
            refresh=REFRESH_SECONDS,
            is_refreshed="refresh" in request.GET,
            pauses=self.link(request, Pause, "changelist"),
            tasks=self.link(request, Task, "changelist"),
        )
        if "refresh" in request.GET:
            answer["Refresh"] = str(REFRESH_SECONDS)
        return answer

    def seen(self, request: HttpRequest) -> Overview:
        """The queues, those alone on which the user's tenants have or had something."""
        tenants = self.tenants_for(request)
        seen = overview(self.using(), windows=(HOUR, DAY), tenants=tenants)
        if tenants is None:
            return seen
        own = [view for view in seen.queues if not view.is_blank]
        names = {view.name for view in own}
        serving = [
            replace(worker, queues=tuple(name for name in worker.queues if name in names))
            for worker in seen.workers
            if names.intersection(worker.queues)
        ]
        return Overview(using=seen.using, now=seen.now, queues=own, workers=serving)

    def panel(self, request: HttpRequest, seen: Overview, view: QueueView) -> Panel:
        tenants = [counts for counts in view.held.tenants if counts.tenant]
        verb = "resume" if view.paused else "pause"
        address = f"{self.url(verb)}?{urlencode({'queue': view.name})}"
        return Panel(
            view=view,
            name=NAMES[view.verdict],
            oldest="-" if view.oldest is None else span(view.oldest),
            tenants=[self.tenant(seen, view, counts) for counts in tenants[:TENANTS_MAX]],
            more_tenants=max(0, len(tenants) - TENANTS_MAX),
            lines=list(lines(view.rates)),
            exact=all(rates.exact for rates in view.rates),
            counts=list(self.counts(request, view)),
            pause=address if self.has_pause_permission(request) else "",
        )

    def tenant(self, seen: Overview, view: QueueView, counts: Counts) -> dict[str, str]:
        """A tenant's line in the table of its queue."""
        told = {name: view.held.told(name, counts) for name in STANDINGS}
        oldest = span((seen.now - counts.since).total_seconds()) if counts.since else "-"
        return told | {"name": counts.tenant, "oldest": oldest}

    def counts(self, request: HttpRequest, view: QueueView) -> Iterator[tuple[Any, str, str, str]]:
        """Each count's name, what it is, its class, and where it is told task by task."""
        for name, (title, state) in STANDINGS.items():
            model = Task if state else DeadLetter
            query = {"in_queue": view.name} | ({"state": state} if state else {})
            page = self.link(request, model, "changelist")
            css = "dead" if name == "dead" and view.total.dead else ""
            yield title, view.held.told(name), css, page and f"{page}?{urlencode(query)}"

    def switch_view(self, verb: str, request: HttpRequest) -> HttpResponse:
        """Ask, and then pause or resume the queue that the address names."""
        if not (self.has_view_permission(request) and self.has_pause_permission(request)):
            raise PermissionDenied
        name = request.GET.get("queue", "")
        views = overview(self.using(), only=[name]).queues if name and "\x00" not in name else []
        if not views or len(name) > CHARACTERS_MAX["queue"]:
            raise BadRequest
        form = ReasonForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            title = _("Pause a queue") if verb == "pause" else _("Resume a queue")
            facts = {"verb": verb, "form": form, "view": views[0], "back": self.url("changelist")}
            return self.page(request, "switch", title=title, original=name, **facts)
        self.switch(verb, request, name, form.cleaned_data["reason"] or None)
        return HttpResponseRedirect(self.url("changelist"))

    def switch(self, verb: str, request: HttpRequest, name: str, reason: str | None) -> None:
        queue = Queue(name, using=self.using())
        act = queue.pause if verb == "pause" else queue.resume
        told = {
            ("pause", True): gettext("%s is paused: nothing is claimed from it any more."),
            ("pause", False): gettext("%s was paused already."),
            ("resume", True): gettext("%s is resumed."),
            ("resume", False): gettext("%s was not paused any more."),
        }
        done = act(by=who(request.user), reason=reason)
        level = messages.SUCCESS if done else messages.WARNING
        # In an element: Django begins what is said with a capital, and a name isn't to change.
        said = format_html(told[verb, done] % "<span>{}</span>", name)
        self.message_user(request, said, level)


def lines(windows: Sequence[Rates]) -> Iterator[dict[str, Any]]:
    """Of each kind of event on a queue, how often a minute just now, and its plots."""
    for what in WHAT:
        now = number(windows[0].per_minute(what, seconds=RECENT_SECONDS))
        plots = [plot(what, rates) for rates in windows]
        yield {"what": what, "title": TITLES[what], "now": now, "plots": plots}


def plot(what: str, rates: Rates) -> dict[str, str]:
    """*what* happened in a window, a minute, as steps in a box of WIDTH by HEIGHT."""
    scale = 60 / rates.window.part_seconds
    parts = [count * scale for count in rates.of(what)]
    most = max(parts)
    step = WIDTH / len(parts)
    steps = "".join(
        f"V{HEIGHT - HEIGHT * part / (most or 1):.1f}H{(place + 1) * step:.1f}"
        for place, part in enumerate(parts)
    )
    facts = {"what": TITLES[what], "most": number(most), "average": number(rates.per_minute(what))}
    hour = gettext("%(what)s in the last hour: %(average)s a minute, at most %(most)s")
    day = gettext("%(what)s in the last day: %(average)s a minute, at most %(most)s")
    return {
        "title": (hour if rates.window == HOUR else day) % facts,
        "outline": f"M0 {HEIGHT}{steps}V{HEIGHT}Z" if most else "",
        "most": number(most),
    }


def staff(worker: WorkerFacts, seen: Overview) -> dict[str, Any]:
    """A worker on the page, its durations in words."""

    def ago(moment: Any) -> str:
        return span(max(0.0, (seen.now - moment).total_seconds()))

    return {
        "facts": worker,
        "up": ago(worker.started_at),
        "seen": ago(worker.seen_at),
        "tasks": [(task, ago(task.since)) for task in worker.tasks],
    }


class PauseAdmin(ReadOnlyTaskAdmin):
    """The record: which queue was paused by whom, when and why."""

    list_display = ("queue", "paused", "resumed")
    list_filter: ClassVar = ("queue",)
    ordering = ("-id",)
    list_display_links = None

    @admin.display(description=_("paused at"))
    def paused(self, pause: Pause) -> str:
        return two_lines(to_the_second(pause.paused_at), pause.paused_by, pause.reason)

    @admin.display(description=_("resumed at"))
    def resumed(self, pause: Pause) -> str:
        if pause.resumed_at is None:
            return ""
        at = to_the_second(pause.resumed_at)
        return two_lines(at, pause.resumed_by, pause.resume_reason)

    def allowed(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """A pause is of all tenants, and its reason may name any: so all of them, or none."""
        here = rows.using(self.using()).exclude(queue=GATE)
        return here if self.tenants_for(request) is None else here.none()
