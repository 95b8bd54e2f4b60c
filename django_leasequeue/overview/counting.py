"""How many tasks a queue holds, tenant by tenant, from a bounded number of its rows.

A count of all rows takes as long as there are rows. So no more than a bound of each lane is
counted, in the order of the index that has them. Where there are more, PostgreSQL's planner says
about how many; elsewhere the counts are "at least".
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from django.db import connections
from django.db.models import Q

from ..fields import Instant
from ..models import Task
from ..transitions import State

STANDINGS: Final = ("visible", "scheduled", "leased", "dead")
COUNTED_MAX: Final = 2_000  # of a lane of a queue; of many queues fewer of each
COUNTED_MIN: Final = 200
COUNTED_OF_ALL_MAX: Final = 6_000
QUEUES_MAX: Final = 200
HEADS_MAX: Final = 300  # tenants and priorities whose oldest is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Some of a queue's rows: which, in the order of their index, and their states by the clock.

    ``cut`` names the counts of which there is more where they are more than the bound, most of all
    of the first.
    """

    rows: str
    order: str
    state: str
    cut: tuple[str, ...]


# What the clock has done counts, written down or not: see transitions.as_of.
BY_CLOCK: Final = """
CASE WHEN visible_at > %(now)s THEN CASE state WHEN 'ready' THEN 'scheduled' ELSE state END
     WHEN state = 'leased' THEN CASE WHEN attempt < max_attempts THEN 'ready' ELSE 'dead' END
     ELSE state END"""
NOW: Final = Lane(
    rows="lane = 'now'",
    order="queue, tenant, priority DESC, visible_at, seq",
    # All that is in this lane is ready: the index alone tells the rest.
    state="CASE WHEN visible_at > %(now)s THEN 'scheduled' ELSE 'ready' END",
    cut=("visible",),
)
LATER: Final = Lane(
    rows="lane = 'later'",
    order="queue, visible_at, seq",
    state=BY_CLOCK,
    cut=("scheduled", "leased"),
)
DEAD: Final = Lane(rows="state = 'dead'", order="queue, seq", state="state", cut=("dead",))
COUNT: Final = """
SELECT tenant, state, COUNT(*), (MIN(visible_at)){utc}
  FROM (SELECT tenant, visible_at, {state} AS state
          FROM leasequeue_task
         WHERE queue = %(queue)s AND {rows}{whose}
         ORDER BY {order}
         LIMIT %(limit)s) AS few
 GROUP BY tenant, state
"""
ESTIMATE: Final = """
EXPLAIN (FORMAT JSON) SELECT 1 FROM leasequeue_task WHERE queue = %(queue)s AND {rows}{whose}
"""
# The first of each tenant and priority, found one by one in the index that has them in this order.
HEADS: Final = """
WITH RECURSIVE head (seq, n) AS (
    SELECT (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now'{whose}
             ORDER BY {order} LIMIT 1), 1
     UNION ALL
    SELECT COALESCE(
           (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now' AND tenant = here.tenant
               AND priority < here.priority
             ORDER BY {order} LIMIT 1),
           (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now' AND tenant > here.tenant{whose}
             ORDER BY {order} LIMIT 1)),
           n + 1
      FROM head
      JOIN leasequeue_task AS here ON here.seq = head.seq
     WHERE n < %(limit)s
)
SELECT here.tenant, (MIN(here.visible_at)){utc}
  FROM head
  JOIN leasequeue_task AS here ON here.seq = head.seq
 GROUP BY here.tenant
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Tasks of one tenant by what the clock says of them.

    ``since`` is when the oldest visible one became so.
    """

    tenant: str
    visible: int = 0
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    since: datetime | None = None

    @property
    def tasks(self) -> int:
        return sum(getattr(self, name) for name in STANDINGS)

    def __add__(self, other: Counts) -> Counts:
        sums = {name: getattr(self, name) + getattr(other, name) for name in STANDINGS}
        since = min(filter(None, (self.since, other.since)), default=None)
        return Counts(tenant=self.tenant, since=since, **sums)


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a queue holds.

    ``cut`` names the counts of which there is more than was counted, ``more`` about how many.
    """

    tenants: tuple[Counts, ...] = ()
    cut: frozenset[str] = frozenset()
    more: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def total(self) -> Counts:
        """Of all tenants, with what is estimated."""
        estimated: dict[str, Any] = dict(self.more)
        return sum(self.tenants, Counts(tenant="", **estimated))

    def told(self, name: str, of: Counts | None = None) -> str:
        """A count for people: "12", "~350000" where it is estimated, "2001+" where it is cut."""
        count = getattr(of or self.total, name)
        if name not in self.cut:
            return str(count)
        return f"~{count}" if name in self.more and of is None else f"{count}+"


def bound(queues: int) -> int:
    """Of each lane of so many queues, how many rows are counted."""
    return min(COUNTED_MAX, max(COUNTED_MIN, COUNTED_OF_ALL_MAX // queues))


def held(
    using: str,
    queue: str,
    now: datetime,
    tenants: Collection[str] | None = None,
    *,
    queues: int = 1,
) -> Held:
    """What *queue* holds, by tenant; those of *tenants*, where they are given.

    Args:
        queues: so many are asked about, and share what may be read.
    """
    if tenants is not None and not tenants:
        return Held()
    table = Table(using=using, queue=queue, tenants=tenants or ())
    at = Instant().get_db_prep_value(now, connections[using])
    found: defaultdict[str, list[Counts]] = defaultdict(list)
    more: dict[str, int] = {}
    cut: set[str] = set()
    for lane in (NOW, LATER, DEAD):
        rows = 0
        for counts in table.counted(lane, at, bound(queues) + 1):
            rows += counts.tasks
            found[counts.tenant].append(counts)
        if rows > bound(queues):
            cut |= {*lane.cut}
            if table.on_postgresql:
                more[lane.cut[0]] = max(0, table.estimated(lane) - rows)
    if "visible" in cut:  # the oldest may lie behind the bound
        for counts in table.heads(HEADS_MAX // queues):
            found[counts.tenant].append(counts)
    by_tenant = tuple(sum(found[tenant], Counts(tenant=tenant)) for tenant in sorted(found))
    return Held(tenants=by_tenant, cut=frozenset(cut), more=more)


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of one queue in the projection, of *tenants* alone where there are any."""

    using: str
    queue: str
    tenants: Collection[str]

    @property
    def on_postgresql(self) -> bool:
        return connections[self.using].vendor == "postgresql"

    def counted(self, lane: Lane, at: Any, limit: int) -> Iterator[Counts]:
        """The first *limit* rows of *lane*, by tenant and by their states at an instant."""
        for tenant, state, number, since in self.answer(COUNT, lane, now=at, limit=limit):
            if state == State.READY:
                yield Counts(tenant=tenant, visible=number, since=utc_instant(since))
            else:
                yield Counts(tenant=tenant, **{state: number})

    def estimated(self, lane: Lane) -> int:
        """About how many rows *lane* has, as PostgreSQL's planner expects."""
        [[said]] = self.answer(ESTIMATE, lane)
        plan = json.loads(said) if isinstance(said, str) else said
        return int(plan[0]["Plan"]["Plan Rows"])

    def heads(self, limit: int) -> Iterator[Counts]:
        """When the oldest written down as visible of each tenant became so."""
        for tenant, since in self.answer(HEADS, NOW, limit=limit):
            yield Counts(tenant=tenant, since=utc_instant(since))

    def answer(self, sql: str, lane: Lane, **asked: Any) -> list[tuple[Any, ...]]:
        names = {f"tenant_{n}": tenant for n, tenant in enumerate(self.tenants)}
        own = ", ".join(f"%({name})s" for name in names)
        parts = {
            "rows": lane.rows,
            "order": lane.order,
            "state": lane.state,
            "whose": f" AND tenant IN ({own})" if own else "",
            "utc": " AT TIME ZONE 'UTC'" if self.on_postgresql else "",
        }
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql.format(**parts), {"queue": self.queue, **names, **asked})
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def utc_instant(said: datetime | str | None) -> datetime | None:
    moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    return moment.replace(tzinfo=UTC) if moment else None


def queues(using: str) -> list[str]:
    """The queues that hold something, found one by one, so that no table is read for them."""
    tasks = Task.objects.using(using)
    found: set[str] = set()
    for lane in (Q(lane="now"), Q(lane="later"), Q(state=State.DEAD)):
        behind = ""
        while len(found) < QUEUES_MAX:
            rows = tasks.filter(lane, queue__gt=behind).order_by("queue")
            following = rows.values_list("queue", flat=True).first()
            if following is None:
                break
            found.add(behind := following)
    return sorted(found)
