"""How many tasks a queue holds, tenant by tenant, from a bounded number of its rows.

A count of all rows takes as long as there are rows. So no more than a bound of each lane is
counted, in the order of the index that has them. Where there are more, PostgreSQL's planner says
about how many; elsewhere the counts are "at least".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from django.db import connections
from django.db.models import Q, QuerySet

from ..fields import Instant
from ..models import Task
from ..transitions import State

COUNTED_MAX: Final = 2_000  # of a lane of a queue; of many queues fewer of each
COUNTED_MIN: Final = 200
COUNTED_OF_ALL_MAX: Final = 6_000
QUEUES_MAX: Final = 200
# All that is in this lane is ready: the index alone tells the rest.
READY: Final = "'ready' AS state, visible_at, 0 AS attempt, 1 AS max_attempts"
ORDERS: Final = {
    "lane = 'now'": "queue, tenant, priority DESC, visible_at, seq",
    "lane = 'later'": "queue, visible_at, seq",
    "state = 'dead'": "queue, seq",
}
# Of what there is more than was counted, where a lane has more rows than the bound: most of all
# of the first.
CUT: Final = {
    "lane = 'now'": ("visible",),
    "lane = 'later'": ("scheduled", "leased"),
    "state = 'dead'": ("dead",),
}
HEADS_MAX: Final = 300  # tenants and priorities whose oldest is asked for
# What the clock has done counts, written down or not: see models.dead_at.
COUNT: Final = """
SELECT tenant,
       SUM(CASE WHEN visible_at <= %s AND (state = 'ready'
                 OR (state = 'leased' AND attempt < max_attempts)) THEN 1 ELSE 0 END),
       SUM(CASE WHEN state = 'ready' AND visible_at > %s THEN 1 ELSE 0 END),
       SUM(CASE WHEN state = 'leased' AND visible_at > %s THEN 1 ELSE 0 END),
       SUM(CASE WHEN state = 'dead' OR (state = 'leased' AND visible_at <= %s
                 AND attempt >= max_attempts) THEN 1 ELSE 0 END),
       COUNT(*),
       (MIN(CASE WHEN visible_at <= %s AND (state = 'ready'
                 OR (state = 'leased' AND attempt < max_attempts)) THEN visible_at END)){utc}
  FROM (SELECT tenant, {columns}
          FROM leasequeue_task
         WHERE queue = %s AND {lane}{whose}
         ORDER BY {order}
         LIMIT %s) AS few
 GROUP BY tenant
"""
ESTIMATE: Final = """
EXPLAIN (FORMAT JSON) SELECT 1 FROM leasequeue_task WHERE queue = %s AND {lane}{whose}
"""
# The first of each tenant and priority, found one by one in the index that has them in this order.
HEADS: Final = """
WITH RECURSIVE head (seq, n) AS (
    SELECT (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now'{whose}
             ORDER BY queue, tenant, priority DESC, visible_at, seq LIMIT 1), 1
     UNION ALL
    SELECT COALESCE(
           (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now' AND tenant = here.tenant
               AND priority < here.priority
             ORDER BY queue, tenant, priority DESC, visible_at, seq LIMIT 1),
           (SELECT seq FROM leasequeue_task
             WHERE queue = %(queue)s AND lane = 'now' AND tenant > here.tenant{whose}
             ORDER BY queue, tenant, priority DESC, visible_at, seq LIMIT 1)),
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

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            since=min(filter(None, (self.since, other.since)), default=None),
            tenant=self.tenant,
            visible=self.visible + other.visible,
            scheduled=self.scheduled + other.scheduled,
            leased=self.leased + other.leased,
            dead=self.dead + other.dead,
        )


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a queue holds.

    ``cut`` names the counts of which there is more than was counted, ``more`` about how many.
    """

    tenants: tuple[Counts, ...] = ()
    cut: frozenset[str] = frozenset()
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> Counts:
        """Of all tenants, with what is estimated."""
        counted = sum(self.tenants, Counts(tenant=""))
        return replace(
            counted, **{name: getattr(counted, name) + more for name, more in self.more.items()}
        )

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
    found: dict[str, Counts] = {}
    cut: set[str] = set()
    more: dict[str, int] = {}

    def add(counts: Counts) -> None:
        so_far = found.get(counts.tenant, Counts(tenant=counts.tenant))
        found[counts.tenant] = so_far + counts

    for lane in ORDERS:
        rows = 0
        for counts, counted in count(using, queue, now, lane, tenants, bound(queues)):
            rows += counted
            add(counts)
        if rows > bound(queues):
            cut |= {*CUT[lane]}
            if about := estimate(using, queue, lane, tenants):
                more[CUT[lane][0]] = max(0, about - rows)
    if "visible" in cut:  # the oldest may lie behind the bound
        for counts in heads(using, queue, tenants, HEADS_MAX // queues):
            add(counts)
    by_tenant = tuple(found[tenant] for tenant in sorted(found))
    return Held(tenants=by_tenant, cut=frozenset(cut), more=more)


def estimate(using: str, queue: str, lane: str, tenants: Collection[str] | None) -> int | None:
    """About how many rows *lane* has, as PostgreSQL's planner expects; None elsewhere."""
    if connections[using].vendor != "postgresql":
        return None
    sql = ESTIMATE.format(lane=lane, whose=whose(tenants))
    with connections[using].cursor() as cursor:
        cursor.execute(sql, [queue, *(tenants or ())])
        [said] = cursor.fetchone()
    plan = json.loads(said) if isinstance(said, str) else said
    return int(plan[0]["Plan"]["Plan Rows"])


def whose(tenants: Collection[str] | None) -> str:
    return f" AND tenant IN ({', '.join(['%s'] * len(tenants))})" if tenants else ""


def heads(using: str, queue: str, tenants: Collection[str] | None, limit: int) -> Iterator[Counts]:
    """When the oldest task of each tenant in the lane ``now`` became visible."""
    mine = {"queue": queue} | {f"tenant_{n}": tenant for n, tenant in enumerate(tenants or ())}
    own = ", ".join(f"%(tenant_{n})s" for n in range(len(tenants or ())))
    sql = HEADS.format(utc=utc_of(using), whose=f" AND tenant IN ({own})" if own else "")
    with connections[using].cursor() as cursor:
        cursor.execute(sql, mine | {"limit": limit})
        for tenant, since in cursor.fetchall():
            yield Counts(tenant=tenant, since=utc_instant(since))


def count(
    using: str,
    queue: str,
    now: datetime,
    lane: str,
    tenants: Collection[str] | None,
    limit: int,
) -> Iterator[tuple[Counts, int]]:
    """The counts of each tenant in the first rows of *lane*, and how many rows they are of.

    One row more than *limit* says that there are more.
    """
    if tenants is not None and not tenants:
        return
    connection = connections[using]
    at = Instant().get_db_prep_value(now, connection)
    utc = utc_of(using)
    columns = READY if "now" in lane else "state, visible_at, attempt, max_attempts"
    own = whose(tenants)
    sql = COUNT.format(lane=lane, order=ORDERS[lane], utc=utc, columns=columns, whose=own)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*[at] * 5, queue, *(tenants or ()), limit + 1])
        for tenant, visible, scheduled, leased, dead, rows, since in cursor.fetchall():
            counts = Counts(
                tenant=tenant,
                visible=int(visible),
                scheduled=int(scheduled),
                leased=int(leased),
                dead=int(dead),
                since=utc_instant(since),
            )
            yield counts, rows


def utc_of(using: str) -> str:
    return " AT TIME ZONE 'UTC'" if connections[using].vendor == "postgresql" else ""


def utc_instant(said: datetime | str | None) -> datetime | None:
    moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    return moment.replace(tzinfo=UTC) if moment else None


def queues(using: str) -> list[str]:
    """The queues that hold something, found one by one, so that no table is read for them."""
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
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
