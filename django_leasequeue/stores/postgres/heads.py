"""Where a queue's visible tasks begin, as the last claims found it.

While somebody holds an old snapshot (a backup, a report), every row that was leased since lies dead
at the head of its tenant's and priority's part of the index, and each claim steps over all of it.
So a claim from a backlog begins where those before it ended, and only now and then at the very
beginning: what became visible behind it (a lease given back, a commit that came late) is found
then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from .rows import Claimed

FULL_LOOK_SECONDS: Final = 2.0
SHARE: Final = 10  # at most every tenth second goes into full looks
LIMIT_MIN: Final = 100  # smaller claims cost less than what they could miss
TENANTS_MAX: Final = 32  # of more a claim takes few tasks each
LATE: Final = timedelta(seconds=1)  # what is committed so late isn't passed by yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What has been looked through.

    Args:
        reached: when the last task that was leased had become visible, and its number, by tenant
            and priority: there, nothing is before it.
        since: nor is there, of those tenants and above the lowest of those priorities, anything
            else from before that instant,
        others_from: of other tenants from before that one,
        due_from: nor anything to come due before that one. None: that isn't known.
    """

    reached: Mapping[tuple[str, int], tuple[datetime, int]] = field(default_factory=dict)
    since: datetime | None = None
    others_from: datetime | None = None
    due_from: datetime | None = None

    def asked(self, priorities: Collection[int]) -> dict[str, Any]:
        """As the claiming statements take it; *priorities* are those that ever were seen."""
        lowest: dict[str, int] = {}
        for tenant, priority in self.reached:
            lowest[tenant] = min(priority, lowest.get(tenant, priority))
        known = [
            (tenant, priority, *self.reached.get((tenant, priority), (self.since, 0)))
            for tenant, least in lowest.items()
            for priority in priorities
            if priority >= least
        ]
        names = ("tenants", "priorities", "visible_from", "seq_from")
        columns = {name: [row[place] for row in known] for place, name in enumerate(names)}
        instants = {name: getattr(self, name) for name in ("since", "others_from", "due_from")}
        return columns | instants

    def before(self, earliest: datetime) -> Bounds:
        """With nothing from that instant on behind them."""
        return Bounds(
            reached={key: min(place, (earliest, 0)) for key, place in self.reached.items()},
            since=self.since and min(self.since, earliest),
            others_from=self.others_from and min(self.others_from, earliest),
            due_from=min(self.due_from or earliest, earliest),  # the oldest are settled first
        )


FROM_THE_BEGINNING: Final = Bounds()


class Head:
    """Of one queue."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.bounds = FROM_THE_BEGINNING
        self.priorities: frozenset[int] = frozenset()
        self.began_at = self.full_look_at = 0.0

    def begun(self, limit: int) -> Head:
        """For a claim of *limit* tasks: small ones begin at the beginning, others when it is time.

        A copy: what claims on other threads find meanwhile must not hide anything from this one.
        """
        head = Head(self.monotonic)
        head.bounds, head.priorities = self.bounds, self.priorities
        head.full_look_at = self.full_look_at
        head.began_at = self.monotonic()
        if limit < LIMIT_MIN or head.began_at >= self.full_look_at:
            head.forget()
        return head

    @property
    def partly(self) -> bool:
        """Whether it begins anywhere else than at the beginning."""
        return self.bounds.since is not None

    def forget(self) -> None:
        """Begin at the beginning next time."""
        self.bounds = FROM_THE_BEGINNING

    def asked(self) -> dict[str, Any]:
        return self.bounds.asked(self.priorities)

    def learn(self, claimed: Claimed, limit: int, *, gate: bool) -> None:
        """What the statement found that ``asked``; *gate*: it found that nothing had come due."""
        leases = claimed.leases
        if not leases or (claimed.alone and len(leases) < limit):
            return  # the next one begins at the beginning
        bounds = self.bounds
        tenants = {lease.tenant for lease in leases}
        if bounds.since is None:
            now = self.monotonic()
            self.full_look_at = now + max(FULL_LOOK_SECONDS, SHARE * (now - self.began_at))
            since = leases[0].leased_at - LATE
            # Where each could have given a second one, the claim has met all that there are.
            met_all = 2 * len(tenants) <= limit and len(tenants) <= TENANTS_MAX
            bounds = replace(
                bounds,
                since=since,
                others_from=since if met_all else None,
                due_from=leases[0].leased_at if gate else bounds.due_from,
            )
        if len(tenants | {tenant for tenant, _ in bounds.reached}) <= TENANTS_MAX:
            self.priorities |= {lease.priority for lease in leases}
            places = {(one.tenant, one.priority): (one.visible_since, one.seq) for one in leases}
            bounds = replace(bounds, reached={**bounds.reached, **places})
        self.bounds = bounds

    def settled(self, earliest: datetime) -> None:
        """Tasks were settled, the earliest as of that instant: find them."""
        self.bounds = self.bounds.before(earliest)
