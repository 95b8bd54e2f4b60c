"""Dead letters that are alike: of one task function, with errors that differ in numbers and names.

One statement counts them, with how many died in each stretch of the last day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.admin.views.main import ChangeList
from django.db.models import Count, Max, Min, Q, QuerySet

from ..story import VANISHED
from .timeline import OUTCOMES
from .wording import breakable

GROUPS_MAX: Final = 100
STRETCH: Final = timedelta(hours=2)
STRETCHES: Final = 12
BAR_HEIGHT: Final = 20


@dataclass(frozen=True, kw_only=True)
class Group:
    """Dead letters of the task function *path* whose last errors have *error* in common.

    ``trend`` says how many died in each stretch of the last day, the oldest first.
    """

    path: str
    error: str
    count: int
    oldest: datetime
    newest: datetime
    trend: Sequence[int]
    query: str

    @property
    def function(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def module(self) -> str:
        return breakable(self.path.rpartition(".")[0])

    @property
    def last_day(self) -> int:
        return sum(self.trend)

    @property
    def bars(self) -> Sequence[tuple[int, int, int]]:
        """Place, top and height of each bar of the trend, in a picture of 20 by 5 each."""
        most = max(self.trend) or 1
        heights = [-(-BAR_HEIGHT * count // most) for count in self.trend]
        return [(5 * n, BAR_HEIGHT - height, height) for n, height in enumerate(heights)]


def groups_of(letters: QuerySet[Any], now: datetime, changelist: ChangeList) -> list[Group]:
    """The groups of *letters*, the largest first, one more than are to be shown.

    Args:
        changelist: whose filters each group's are added to.
    """
    rows = letters.order_by().values("path", "fingerprint")
    rows = rows.annotate(
        count=Count("pk"),
        oldest=Min("visible_at"),
        newest=Max("visible_at"),
        **{f"died_{n}": Count("pk", filter=stretch(n, now)) for n in range(STRETCHES)},
    )
    found = rows.order_by("-count", "path", "fingerprint")[: GROUPS_MAX + 1]
    return [group(row, changelist) for row in found]


def stretch(n: int, now: datetime) -> Q:
    """Those that died in the stretch *n* of the last day, from the oldest."""
    end = now - STRETCH * (STRETCHES - 1 - n)
    return Q(visible_at__gt=end - STRETCH, visible_at__lte=end)


def group(row: dict[str, Any], changelist: ChangeList) -> Group:
    trend = [row.pop(f"died_{n}") for n in range(STRETCHES)]
    common = row.pop("fingerprint")
    own = {"of_task": row["path"], "error": common or ""}
    error = common or str(OUTCOMES[VANISHED])
    return Group(error=error, trend=trend, query=changelist.get_query_string(own), **row)
