"""Who may see what: the rules that every page over the queue's tables shares."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import HttpRequest

from ..conf import backends, parse
from ..stores import store_for
from ..stores.base import Store


class ReadOnlyTaskAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages that show the queue's tables and change nothing by themselves."""

    def tenants_for(self, request: HttpRequest) -> Collection[str] | None:
        """The tenants whose tasks this user may see and act on; None: all. To be overridden."""
        return None

    def using(self) -> str:
        """Alias of the database whose tasks are shown; to be overridden where there are several."""
        for _, config in backends():
            return parse(config.get("OPTIONS", {})).using
        return DEFAULT_DB_ALIAS

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

    def allowed(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those of *rows*, tasks or transitions, that belong to the user's tenants."""
        tenants = self.tenants_for(request)
        here = rows.using(self.using())
        return here if tenants is None else here.filter(tenant__in=tenants)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return self.allowed(request, super().get_queryset(request))

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
