"""What the statements answer, as the values that the rest of the package knows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ...lease import Lease
from ...transitions import Kind, State, TaskRecord, Transition


def utc(moment: datetime) -> datetime:
    """An instant that a statement answered, always as naive UTC: exact whatever USE_TZ says."""
    return moment.replace(tzinfo=UTC)


def leases(rows: Iterable[dict[str, Any]], *, queue: str, worker: str) -> list[Lease]:
    """The leases among *rows*, in the order of their tokens."""
    found = [lease(row, queue, worker) for row in rows if row["token"] is not None]
    return sorted(found, key=lambda lease: lease.token)


def lease(row: dict[str, Any], queue: str, worker: str) -> Lease:
    facts = {name: row[name] for name in row if name not in ("due", "alone")}
    facts["leased_at"], facts["deadline"] = utc(row["leased_at"]), utc(row["deadline"])
    left = (facts["deadline"] - facts["leased_at"]).total_seconds()
    return Lease(queue=queue, worker=worker, seconds_left=left, **facts)
