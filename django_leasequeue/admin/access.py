"""Who may see what: the rules that every page over the queue's tables shares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest
from django.db import DEFAULT_DB_ALIAS
from django.db.models import BooleanField, Func, Model, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst

from ..conf import backends, parse
from ..models import Task, dead_at, died_at
from ..stores import store_for
from ..stores.base import Store
from ..transitions import State

UNWRITTEN_MAX: Final = 500  # dead by the clock alone, before they are asked for by it


class ReadOnlyTaskAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages that show the queue's tables and change nothing by themselves."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count for each value would be a scan for each

    class Media:
        css: ClassVar = {"all": ["leasequeue/admin.css"]}

    def tenants_for(self, request: HttpRequest) -> Collection[str] | None:
        """The tenants whose tasks this user may see and act on; None: all. To be overridden."""
        return None

    def using(self) -> str:
        """Alias of the database whose tasks are shown; to be overridden where there are several."""
        return next((parse(*each).using for each in backends()), DEFAULT_DB_ALIAS)

    @property
    def store(self) -> Store:
        return store_for(self.using())

    def now(self, request: HttpRequest) -> datetime:
        """The present instant on the tasks' database's clock, the same for all of a request."""
        known = vars(request)
        if "leasequeue_now" not in known:
            known["leasequeue_now"] = self.store.now()
        moment: datetime = known["leasequeue_now"]
        return moment

    def dead(self, request: HttpRequest) -> Q:
        """Which tasks are dead letters now, in words that the indexes have: those that are by the
        clock alone are few, and named."""
        known = vars(request)
        if "leasequeue_dead" not in known:
            now = self.now(request)
            tasks = Task.objects.using(self.using()).filter(died_at(now))
            found = list(tasks.values_list("pk", flat=True)[: UNWRITTEN_MAX + 1])
            named = Q(state=State.DEAD) | Q(pk__in=found) if found else Q(state=State.DEAD)
            known["leasequeue_dead"] = named if len(found) <= UNWRITTEN_MAX else dead_at(now)
        dead: Q = known["leasequeue_dead"]
        return dead

    def allowed(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those of *rows*, tasks or transitions, that belong to the user's tenants."""
        tenants = self.tenants_for(request)
        here = rows.using(self.using())
        return here if tenants is None else here.filter(tenant__in=tenants)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return self.allowed(request, super().get_queryset(request))

    def some(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows of the list to choose its filters' values from, the newest of which are cheap."""
        return self.get_queryset(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """As Django's; but what no database can be asked for is a bad request, no server error."""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        asked = [value for _, values in request.GET.lists() for value in values]
        if chosen != positions(chosen) or any("\x00" in value for value in asked):
            raise BadRequest
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, title | (extra_context or {}))

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """As Django's, which finds out too late that a year is none."""
        try:
            return super().get_changelist_instance(request)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("leasequeue.redrive_task")

    def has_view_payload_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("leasequeue.view_payload")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("leasequeue.cancel_task")

    def page(
        self, request: HttpRequest, name: str, *, original: Any, **context: Any
    ) -> HttpResponse:
        """The page of the template *name* in the admin's frame, under the breadcrumb *original*."""
        shared = self.admin_site.each_context(request) | {
            "opts": self.opts,
            "media": self.media,
            "has_view_permission": True,
            "original": str(original),  # django-unfold takes what is no text for a model's row
        }
        return TemplateResponse(request, f"admin/leasequeue/{name}.html", shared | context)

    def named_path(self, route: str, name: str, view: Callable[..., HttpResponse]) -> URLPattern:
        """A page beside Django's own; ``url`` finds it by its name."""
        full_name = f"{self.opts.app_label}_{self.opts.model_name}_{name}"
        return path(route, self.admin_site.admin_view(view), name=full_name)

    def url(self, name: str, *args: Any, model: type[Model] | None = None) -> str:
        opts = (model or self.model)._meta
        view = f"{self.admin_site.name}:{opts.app_label}_{opts.model_name}_{name}"
        return reverse(view, args=args, current_app=self.admin_site.name)

    def link(self, request: HttpRequest, model: type[Model], name: str, *args: Any) -> str:
        """Address of another model's page; empty where there is none, or none for this user."""
        site = self.admin_site
        if not site.is_registered(model):
            return ""
        allowed = site.get_model_admin(model).has_view_permission(request)
        return self.url(name, *args, model=model) if allowed else ""


def positions(texts: Iterable[str]) -> list[str]:
    """Those of *texts*, from an address or a form, that can be a row's number."""
    return [text for text in texts if text.isdecimal() and len(text) < 19]


def of_own_id(tasks: QuerySet[Any], id: str) -> QuerySet[Any]:
    """Those of *tasks* that were given *id*, by PostgreSQL's index, which has no ids but those."""
    life = Cast("life", TextField())
    joined = {"template": "%(expressions)s", "arg_joiner": " <> "}
    given = Func("task_id", life, output_field=BooleanField(), **joined)
    return tasks.filter(given, task_id=id)
