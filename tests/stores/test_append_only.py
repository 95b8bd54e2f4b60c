"""A move is logged and made, or neither: here the log refuses its first row, its second, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from django.db import DatabaseError, connections

from django_leasequeue.lease import Lease
from django_leasequeue.models import Task, TaskTransition, Turn
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind, Transition
from tests.builders import (
    QUEUE,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    erased,
    redriven,
)

pytestmark = pytest.mark.parametrize("alias", ["memory", "sqlite"], indirect=True)
# PostgreSQL writes a move's rows in one statement; its own folder has the test for that.

Move = Callable[[Store, list[Lease]], Any]
MOVES: Final[dict[str, tuple[int, Move]]] = {  # rows that the move logs, and the move
    "enqueue": (3, lambda store, _: store.enqueue(QUEUE, [a_task(id) for id in "xyz"])),
    "duplicate": (1, lambda store, _: store.enqueue(QUEUE, [a_task("ready")])),
    "claim": (2, lambda store, _: store.claim(QUEUE, worker="w", limit=2)),
    "heartbeat": (1, lambda store, leases: store.heartbeat(leases[0], "1")),
    "complete": (2, lambda store, leases: store.complete([a_finish(x) for x in leases])),
    "fail": (2, lambda store, leases: store.fail([a_failure(x) for x in leases])),
    "drop": (1, lambda store, leases: store.fail([a_failure(leases[1], Kind.DROPPED)])),
    "release": (2, lambda store, leases: store.release(leases)),
    "adopt": (2, lambda store, _: store.adopt(QUEUE, "w")),
    "redrive": (2, lambda store, _: redriven(store, "dead", "buried")),
    "cancel": (1, lambda store, _: cancelled(store, "ready")),
    "erase": (1, lambda store, leases: erased(store, leases[0].life)),
}


class FullLog(list[Transition]):
    """Takes so many rows more."""

    def __init__(self, rows: list[Transition], room: int) -> None:
        super().__init__(rows)
        self.full = len(rows) + room

    def append(self, row: Transition) -> None:
        if len(self) == self.full:
            raise DatabaseError("the log is full")
        super().append(row)


def fill_log(store: Store, room: int) -> None:
    """Let *room* more rows into the log, for real."""
    if isinstance(store, MemoryStore):
        store.transitions = FullLog(store.transitions, room)
        return
    full = TaskTransition.objects.using(store.using).count() + room
    count = "SELECT count(*) FROM leasequeue_transition"
    with connections[store.using].cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER full_log BEFORE INSERT ON leasequeue_transition "
            f"WHEN ({count}) >= {full} BEGIN SELECT RAISE(ABORT, 'the log is full'); END"
        )


def contents(store: Store) -> list[Any]:
    """All that a move may change."""
    if isinstance(store, MemoryStore):
        return [dict(store.tasks), list(store.transitions), dict(store.names), dict(store.turns)]
    return [
        list(model.objects.using(store.using).order_by("pk").values())
        for model in (Task, TaskTransition, Turn)
    ]


@pytest.mark.parametrize(
    ("move", "room"), [(move, room) for move in MOVES for room in range(MOVES[move][0])]
)
def test_a_move_that_can_not_be_logged_in_full_changes_nothing(
    store: Store, clock: FakeClock, move: str, room: int
) -> None:
    for id in ("dead", "buried"):
        a_dead_letter(store, id)
    leases = [a_lease(store, "one"), a_lease(store, "two", tenant="t")]
    store.enqueue(QUEUE, [a_task("ready"), a_task("next", tenant="t")])
    before = contents(store)
    fill_log(store, room)

    with pytest.raises(DatabaseError, match="the log is full"):
        MOVES[move][1](store, leases)

    assert contents(store) == before


def test_a_settling_that_can_not_be_logged_in_full_changes_nothing(
    store: Store, clock: FakeClock
) -> None:
    for id in ("one", "two"):
        a_lease(store, id)
    clock.set(30)
    before = contents(store)
    fill_log(store, 1)

    with pytest.raises(DatabaseError, match="the log is full"):
        store.settle(QUEUE)

    assert contents(store) == before
