"""How far the lists look in large tables, so that no page keeps the database for long.

What an index can answer is answered in full. What would read a whole table (words within words,
another order, a filter that hits nothing) is looked for among the newest rows only, and the page
says so. Small tables are looked through in full. ``docs/dead-letters.md`` has the figures.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.paginator import Page, Paginator
from django.db.models import Max, Min, QuerySet

COUNTED_MAX: Final = 10_000
TASKS_MAX: Final = 50_000  # looked through without an index
POSITIONS_MAX: Final = 200_000  # of the log, likewise


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts so far and no further: counting a large table takes longer than any page of it.

    One look finds the rows' numbers in their order, and so their count and each page.
    """

    @cached_property
    def numbers(self) -> list[Any]:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return list(rows.values_list("pk", flat=True)[: COUNTED_MAX + 1])

    @cached_property
    def count(self) -> int:
        return min(len(self.numbers), COUNTED_MAX)

    @property
    def is_cut(self) -> bool:
        return len(self.numbers) > COUNTED_MAX

    def page(self, number: Any) -> Page[Any]:
        number = self.validate_number(number)
        start = (number - 1) * self.per_page
        wanted = self.numbers[start : min(start + self.per_page, self.count)]
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return Page(rows.filter(pk__in=wanted), number, self)


class BoundedChangeList(ChangeList):
    """A list that looks once for what it shows."""

    paginator: BoundedPaginator

    def get_results(self, request: Any) -> None:
        super().get_results(request)
        if self.show_all:
            return
        page = self.page_num if self.multi_page else 1
        self.result_list = self.paginator.page(page).object_list
        if self.paginator.is_cut:
            self.full_result_count = self.result_count  # no word of "results" beside the search


class TaskChangeList(BoundedChangeList):
    """A list of held tasks. ``looked_at``: how many of the newest it was made of, if not of all."""

    model_admin: Any

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        if ORDER_VAR in self.params:
            rows = self.model_admin.newest(request, rows)
        self.looked_at = TASKS_MAX if vars(request).get("leasequeue_bounded") else None
        return rows


class UnreadChangeList(TaskChangeList):
    """The filters and the search of a list, without its rows."""

    def get_results(self, request: Any) -> None:
        self.result_count = self.full_result_count = 0
        self.show_full_result_count = False
        self.can_show_all = self.multi_page = False
        self.result_list = self.root_queryset.none()
        self.paginator = self.model_admin.get_paginator(request, self.result_list, 1)


def newest(rows: QuerySet[Any], among: QuerySet[Any], field: str) -> QuerySet[Any] | None:
    """Those of *rows* that are among the newest TASKS_MAX of *among*; None where there are no more.

    Args:
        field: has an index, by which the newest come last.
    """
    values = among.order_by(f"-{field}").values_list(field, flat=True)
    for bound in values[TASKS_MAX : TASKS_MAX + 1]:
        return rows.filter(**{f"{field}__gt": bound})
    return None


def last_positions(rows: QuerySet[Any], log: QuerySet[Any]) -> tuple[QuerySet[Any], int | None]:
    """Those of *rows* that are among the last POSITIONS_MAX positions of *log*.

    Returns:
        The rows, and how many positions they are of; None: of all.
    """
    ends = log.aggregate(first=Min("pk"), last=Max("pk"))
    bound = (ends["last"] or 0) - POSITIONS_MAX
    if (ends["first"] or 0) > bound:
        return rows, None
    return rows.filter(pk__gt=bound), POSITIONS_MAX
