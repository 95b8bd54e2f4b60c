"""What the statements answer, as the values that the rest of the package knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, overload
from uuid import UUID

from ...lease import Lease
from ...records import EnqueuedTask
from ...transitions import TASK, Kind, State, TaskRecord, Transition

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What one claiming statement answered.

    ``due``: something came due by time and has to be settled first; nothing was leased.
    ``alone``: no second tenant has visible tasks.
    """

    leases: list[Lease]
    due: bool
    alone: bool


def utc(moment: datetime) -> datetime:
    """An instant of an answer: selected at UTC and naive, so that USE_TZ can't touch it."""
    return moment.replace(tzinfo=UTC)


def claimed(rows: Sequence[tuple[Any, ...]], *, queue: str, worker: str) -> Claimed:
    """What the *rows* of a claim tell, columns in the order of its statement."""
    due, alone, *_ = rows[0]
    leases = []
    for (
        _, _, token, seq, life, tenant, id, dedupe_key, attempt, max_attempts, max_lease,
        priority, path, previous_token, payload_text, details_text,
        enqueued_at, visible_since, leased_at, deadline,
    ) in rows:  # fmt: skip
        if token is None:
            break
        left = (deadline - leased_at).total_seconds()
        facts = (  # in the order of a lease's fields
            queue, tenant, id, seq, life, token, attempt, max_attempts, worker,
            utc(leased_at), utc(deadline), max_lease, left, utc(enqueued_at), utc(visible_since),
            previous_token, dedupe_key, priority, path, payload_text, details_text, True,
        )  # fmt: skip
        leases.append(Lease._make(facts))
    leases.sort(key=attrgetter("token"))
    return Claimed(leases=leases, due=due, alone=alone)


def enqueued(
    row: Row, *, life: UUID, id: str, tenant: str, duplicate: bool = False
) -> EnqueuedTask:
    answer = row["state"], row["enqueued_at"], row["visible_at"]
    return stored_as(answer, life=life, id=id, tenant=tenant, duplicate=duplicate)


def stored_as(
    answer: Sequence[Any], *, life: UUID, id: str, tenant: str, duplicate: bool = False
) -> EnqueuedTask:
    """What an *answer* tells of a task, columns in the order of its statement."""
    state, enqueued_at, visible_at = answer
    return EnqueuedTask(
        life=life,
        id=id,
        tenant=tenant,
        state=State(state),
        enqueued_at=utc(enqueued_at),
        visible_at=utc(visible_at),
        duplicate=duplicate,
    )


class StoredAlike(Sequence[EnqueuedTask]):
    """What one *answer* tells of the tasks of all *lives*, each made when it is asked for."""

    def __init__(self, answer: Sequence[Any], *, lives: Sequence[str], tenant: str) -> None:
        self.answer = answer
        self.lives = lives
        self.tenant = tenant

    def __len__(self) -> int:
        return len(self.lives)

    @overload
    def __getitem__(self, index: int) -> EnqueuedTask: ...
    @overload
    def __getitem__(self, index: slice) -> list[EnqueuedTask]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        life = self.lives[index]
        return stored_as(self.answer, life=UUID(life), id=life, tenant=self.tenant)


def record(row: Row) -> TaskRecord:
    facts = {name: row[name] for name in TASK}
    for name in ("enqueued_at", "visible_at", "leased_at"):
        facts[name] = facts[name] and utc(facts[name])
    return TaskRecord(**facts | {"state": State(row["state"])})


def happened(rows: Iterable[Row], queue: str) -> Iterator[tuple[str, Transition]]:
    """The transitions that *rows* tell of, with the ids of their tasks, for the signals."""
    for row in rows:
        if row["kind"] is not None:
            yield (
                row["id"],
                Transition(
                    kind=Kind(row["kind"]),
                    at=utc(row["at"]),
                    life=row["life"],
                    queue=queue,
                    tenant=row["tenant"],
                    attempt=row["attempt"],
                    token=row["token"],
                    worker=row["worker"],
                    data=row.get("data"),
                ),
            )


def skipped(row: Row) -> str | None:
    """Why a redrive left the task of *row* where it was; None where it didn't."""
    if row["kind"] == Kind.REDRIVEN:
        return None
    if row["state"] != State.DEAD:
        return f"not dead: {row['state']}"
    if row["held_by"] is not None:
        return f"key {row['key']!r} is held by {row['held_by']}"
    return "busy"
