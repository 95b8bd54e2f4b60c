"""How many tasks a queue holds, tenant by tenant, from a bounded number of its rows.

A count of all rows takes as long as there are rows. So no more than a bound of each lane is
counted, in the order of the index that has them; where there are more, the counts are "at least".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db import connections
from django.db.models import Q, QuerySet

from ..fields import Instant
from ..models import Task
from ..transitions import State

COUNTED_MAX: Final = 5_000
QUEUES_MAX: Final = 200
# All that is in this lane is ready: the index alone tells the rest.
READY: Final = "'ready' AS state, visible_at, 0 AS attempt, 1 AS max_attempts"
ORDERS: Final = {
    "lane = 'now'": "queue, tenant, priority DESC, visible_at, seq",
    "lane = 'later'": "queue, visible_at, seq",
    "state = 'dead'": "queue, seq",
}
# Of what there is more than was counted, where a lane has more rows than the bound.
CUT: Final = {
    "lane = 'now'": {"visible"},
    "lane = 'later'": {"scheduled", "leased"},
    "state = 'dead'": {"dead"},
}
HEADS_MAX: Final = 200  # tenants and priorities whose oldest is asked for
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What a queue holds; ``cut`` names the counts of which there is more than was counted."""

    tenants: tuple[Counts, ...] = ()
    cut: frozenset[str] = frozenset()

    @property
    def total(self) -> Counts:
        return sum(self.tenants, Counts(tenant=""))


def held(using: str, queue: str, now: datetime, tenants: Collection[str] | None = None) -> Held:
    """What *queue* holds, by tenant; those of *tenants*, where they are given."""
    found: dict[str, Counts] = {}
    cut: set[str] = set()

    def add(counts: Counts) -> None:
        so_far = found.get(counts.tenant, Counts(tenant=counts.tenant))
        found[counts.tenant] = so_far + counts

    for lane in ORDERS:
        rows = 0
        for counts, counted in count(using, queue, now, lane, tenants):
            rows += counted
            add(counts)
        if rows > COUNTED_MAX:
            cut |= CUT[lane]
    if "visible" in cut:  # the oldest may lie behind the bound
        for counts in heads(using, queue, tenants):
            add(counts)
    return Held(tenants=tuple(found[tenant] for tenant in sorted(found)), cut=frozenset(cut))


def heads(using: str, queue: str, tenants: Collection[str] | None) -> Iterator[Counts]:
    """When the oldest task of each tenant and priority in the lane ``now`` became visible.

    Found one by one in the index that has them in this order.
    """
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    waiting = tasks.filter(queue=queue, lane="now")
    if tenants is not None:
        waiting = waiting.filter(tenant__in=tenants)
    ordered = waiting.order_by("tenant", "-priority", "visible_at", "seq")
    values = "tenant", "priority", "visible_at"
    head = ordered.values_list(*values).first()
    for _ in range(HEADS_MAX):
        if head is None:
            return
        tenant, priority, since = head
        yield Counts(tenant=tenant, since=since)
        head = (
            ordered.filter(tenant=tenant, priority__lt=priority).values_list(*values).first()
            or ordered.filter(tenant__gt=tenant).values_list(*values).first()
        )


def count(
    using: str, queue: str, now: datetime, lane: str, tenants: Collection[str] | None
) -> Iterator[tuple[Counts, int]]:
    """The counts of each tenant in the first rows of *lane*, and how many rows they are of."""
    if tenants is not None and not tenants:
        return
    connection = connections[using]
    at = Instant().get_db_prep_value(now, connection)
    utc = " AT TIME ZONE 'UTC'" if connection.vendor == "postgresql" else ""
    columns = READY if "now" in lane else "state, visible_at, attempt, max_attempts"
    whose = f" AND tenant IN ({', '.join(['%s'] * len(tenants))})" if tenants else ""
    sql = COUNT.format(lane=lane, order=ORDERS[lane], utc=utc, columns=columns, whose=whose)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*[at] * 5, queue, *(tenants or ()), COUNTED_MAX + 1])
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
