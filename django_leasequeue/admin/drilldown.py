"""Dates in the log, found without reading it: its positions rise with time.

Django's own drill-down groups all rows by day, and there is no index on ``at`` that could help: it
would cost every move. So the days between the log's ends are offered, whether or not something
happened on each, and a day's rows are those between two positions that halving finds. What the
clock did is dated when it did it, and stands where somebody wrote it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import gettext

from ..fields import Instant
from ..models import TaskTransition
from ..overview.rates import position_at
from .bounds import BoundedChangeList, last_positions
from .wording import local

LEVELS: Final = ("at__year", "at__month", "at__day")
LOOSE: Final = frozenset({"kind", "in_queue"})  # filters
FORMATS: Final = ("Y", "YEAR_MONTH_FORMAT", "MONTH_DAY_FORMAT")


class LogChangeList(BoundedChangeList):
    """A list of transitions whose dates are stretches of the log."""

    def get_filters(self, request: Any) -> Any:
        levels = [self.params.get(level, "1") for level in LEVELS]
        if not all(level.isdecimal() and len(level) <= 4 for level in levels):
            raise IncorrectLookupParameters
        found = super().get_filters(request)
        lookups: dict[str, Any] = found[2]
        for end in ("gte", "lt"):
            [moment] = lookups.get(f"at__{end}", [None])
            if isinstance(moment, datetime):
                del lookups[f"at__{end}"]
                log = TaskTransition.objects.using(self.root_queryset.db)
                lookups[f"pk__{end}"] = [position_at(log, Instant.to_utc(moment))]
        self.stretch = {name: values[0] for name, values in lookups.items() if name[:2] == "pk"}
        return found

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet[Any]:
        """What no index helps to find is looked for near the end of the log, or of the date."""
        rows = super().get_queryset(request, exclude_parameters)
        lives = vars(request).get("leasequeue_lives")
        limited = self.model_admin.tenants_for(request) is not None
        if lives or not (self.query or limited or LOOSE & self.params.keys()):
            return rows
        log = TaskTransition.objects.using(rows.db).filter(**self.stretch)
        bounded, self.looked_at = last_positions(rows, log)
        return bounded

    def notes(self) -> Iterator[str]:
        """What the page doesn't show, and how to get there."""
        told = list(super().notes())
        yield from told
        if told:
            yield gettext("Choose a date to look further back.")

    def dates(self) -> dict[str, Any]:
        """What Django's template for drill-downs shows: the years, months or days to choose."""
        chosen = tuple(int(self.params[level]) for level in LEVELS if level in self.params)
        days = [day for day in self.days() if parts(day)[: len(chosen)] == chosen]
        depth = next((n for n in (1, 2) if len({parts(day)[:n] for day in days}) > 1), 3)
        depth = min(max(depth, len(chosen) + 1), 3)
        keys = sorted({parts(day)[:depth] for day in days})
        return {
            "back": self.choice(chosen[:-1]) if chosen else None,
            "choices": [self.choice(key) for key in keys],
        }

    def days(self) -> list[date]:
        """Every day from the first to the last row that the user may see."""
        rows = self.root_queryset.values_list("at", flat=True)
        ends = [*rows.order_by("pk")[:1], *rows.order_by("-pk")[:1]]
        if not ends:
            return []
        first, last = sorted(local(end).date() for end in ends)
        return [first + timedelta(days=n) for n in range((last - first).days + 1)]

    def choice(self, key: tuple[int, ...]) -> dict[str, str]:
        link = self.get_query_string(dict(zip(LEVELS, key, strict=False)), ["at__"])
        if not key:
            return {"link": link, "title": gettext("All dates")}
        day = date(*(*key, 1, 1)[:3])
        return {"link": link, "title": capfirst(date_format(day, FORMATS[len(key) - 1]))}


def parts(day: date) -> tuple[int, int, int]:
    return day.year, day.month, day.day
