"""How far the lists look in large tables, so that no page keeps the database for long.

What an index can answer is answered in full. What would read a whole table (words within words,
another order, a filter that hits nothing) is looked for among the newest rows only, and the page
says so. Small tables are looked through in full. ``docs/large-tables.md`` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import EmptyResultSet
from django.core.paginator import Paginator
from django.db.models import Max, Min, QuerySet
from django.utils.formats import number_format
from django.utils.translation import gettext

COUNTED_MAX: Final = 10_000
FILTERED_MAX: Final = 100_000  # held tasks, looked through for a filter that has no index
SEARCHED_MAX: Final = 25_000  # likewise, for words, or put in another order
POSITIONS_MAX: Final = 200_000  # of the log, likewise


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts so far and no further: counting a large table takes longer than any page of it.

    One look finds the rows' numbers in their order, and so their count and those of each page.
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

    def numbers_of(self, page: int) -> list[Any]:
        start = (self.validate_number(page) - 1) * self.per_page
        return self.numbers[start : min(start + self.per_page, self.count)]


class BoundedChangeList(ChangeList):
    """A list that looks once for what it shows. ``looked_at``: in how many rows, if not in all."""

    paginator: BoundedPaginator
    model_admin: Any
    looked_at: int | None = None

    def get_results(self, request: Any) -> None:
        super().get_results(request)
        if self.show_all:
            return
        numbers = self.paginator.numbers_of(self.page_num if self.multi_page else 1)
        # By number alone: whatever else was asked is answered, and would only mislead the planner.
        rows = self.root_queryset.in_bulk(numbers)
        self.result_list = [rows[number] for number in numbers if number in rows]
        if self.paginator.is_cut or not (self.query or self.has_active_filters):
            self.full_result_count = self.result_count  # no word of "results" beside the search

    def notes(self) -> Iterator[str]:
        """What the page doesn't show, and why."""
        if self.looked_at:
            told = gettext("Looked for in the newest %s rows only.")
            yield told % number_format(self.looked_at)
        for spec in self.filter_specs:
            yield from getattr(spec, "notes", ())
        if self.paginator.is_cut:
            told = gettext("More than %s: rows are counted, and paged, no further.")
            yield told % number_format(self.result_count)


class TaskChangeList(BoundedChangeList):
    """A list of held tasks."""

    elsewhere = ""

    def get_results(self, request: Any) -> None:
        super().get_results(request)
        if self.query and not self.result_count:
            self.elsewhere = self.model_admin.elsewhere(request, self.query)

    def notes(self) -> Iterator[str]:
        """What the page doesn't show, and where what was looked for may be by now."""
        yield from super().notes()
        if self.elsewhere:
            yield self.elsewhere

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        if vars(request).get("leasequeue_found"):  # by an index
            return rows
        if self.query:
            return self.newest(rows, SEARCHED_MAX)
        if request.method == "POST":
            return rows  # all that the filters match is meant, in whatever order
        if ORDER_VAR in self.params:
            return self.newest(rows, SEARCHED_MAX)
        return self.newest(rows, FILTERED_MAX) if self.has_active_filters else rows

    def newest(self, rows: QuerySet[Any], limit: int) -> QuerySet[Any]:
        """Those of *rows* that are among the *limit* newest, whosever those are."""
        admin = self.model_admin
        bounded = newest(rows, admin.written_down(), admin.until_field, limit)
        self.looked_at = None if bounded is rows else limit
        return bounded


class UnreadChangeList(TaskChangeList):
    """The filters and the search of a list, without its rows."""

    def get_results(self, request: Any) -> None:
        with suppress(EmptyResultSet):  # what can't be asked is found out as by reading
            self.queryset.query.get_compiler(self.queryset.db).as_sql()
        self.result_count = self.full_result_count = 0
        self.show_full_result_count = False
        self.can_show_all = self.multi_page = False
        self.result_list = self.root_queryset.none()
        self.paginator = self.model_admin.get_paginator(request, self.result_list, 1)


def newest(rows: QuerySet[Any], among: QuerySet[Any], field: str, limit: int) -> QuerySet[Any]:
    """Those of *rows* that are among the *limit* newest of *among*; *rows*, where those are all.

    Args:
        field: has an index, by which the newest come last.
    """
    # Its number first: to read an instant in UTC, and order by it, would sort.
    numbers = among.order_by(f"-{field}", "-pk").values_list("pk", flat=True)
    for last in numbers[limit : limit + 1]:
        [bound] = among.filter(pk=last).values_list(field, flat=True)
        return rows.filter(**{f"{field}__gt": bound})
    return rows


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
