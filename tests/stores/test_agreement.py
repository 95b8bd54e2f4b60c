"""Every move on a task in every state, on every store: what happens is what RULES says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest

from django_leasequeue.lease import Lease
from django_leasequeue.stores.base import Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import RULES, Kind, State, Transition, as_of, fold_all
from tests.builders import (
    QUEUE,
    a_claim,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    erased,
    redriven,
)

PRESENT: Final = 30  # seconds; when the move is made


def ready(store: Store, clock: FakeClock) -> Lease:
    lease = a_lease(store)
    store.release([lease])
    return lease


def scheduled(store: Store, clock: FakeClock) -> Lease:
    lease = a_lease(store)
    store.fail([a_failure(lease, Kind.RETRIED, seconds=PRESENT + 1)])
    return lease


def leased(store: Store, clock: FakeClock) -> Lease:
    clock.set(PRESENT - 1)
    return a_lease(store)


def lapsed(store: Store, clock: FakeClock) -> Lease:
    return a_lease(store)


def died(store: Store, clock: FakeClock) -> Lease:
    return a_lease(store, max_attempts=1)


def dead(store: Store, clock: FakeClock) -> Lease:
    return a_dead_letter(store)


def left(store: Store, clock: FakeClock) -> Lease:
    lease = a_lease(store)
    store.complete([a_finish(lease)])
    return lease


def superseded(store: Store, clock: FakeClock) -> Lease:
    """Leased, but not by the lease that the move is made with."""
    lease = a_lease(store, visibility=timedelta(seconds=PRESENT - 1))
    clock.set(PRESENT - 1)
    a_claim(store)
    return lease


STATES: Final = {
    "ready": (ready, State.READY),
    "scheduled": (scheduled, State.SCHEDULED),
    "leased": (leased, State.LEASED),
    "lapsed": (lapsed, State.READY),
    "died": (died, State.DEAD),
    "dead": (dead, State.DEAD),
    "left": (left, None),
}

Move = Callable[[Store, Lease], object]
ON_LEASES: Final[dict[str, tuple[Kind, Move]]] = {
    "heartbeat": (Kind.HEARTBEAT, lambda store, lease: store.heartbeat(lease, "1")),
    "complete": (Kind.ACKED, lambda store, lease: store.complete([a_finish(lease)])),
    "retry": (Kind.RETRIED, lambda store, lease: store.fail([a_failure(lease)])),
    "drop": (Kind.DROPPED, lambda store, lease: store.fail([a_failure(lease, Kind.DROPPED)])),
    "bury": (Kind.DEAD, lambda store, lease: store.fail([a_failure(lease, Kind.DEAD)])),
    "release": (Kind.RELEASED, lambda store, lease: store.release([lease])),
}
ON_TASKS: Final[dict[str, tuple[Kind, Move]]] = {
    "enqueue": (Kind.ENQUEUED, lambda store, lease: store.enqueue(QUEUE, [a_task("a")])),
    "claim": (Kind.LEASED, lambda store, lease: store.claim(QUEUE, worker="w", limit=1)),
    "adopt": (Kind.LAPSED, lambda store, lease: store.adopt(QUEUE, "w")),
    "redrive": (Kind.REDRIVEN, lambda store, lease: redriven(store, "a")),
    "cancel": (Kind.CANCELLED, lambda store, lease: cancelled(store)),
    "erase": (Kind.ERASED, lambda store, lease: erased(store, lease.life)),
}
INSTEAD: Final = {Kind.ENQUEUED: Kind.DUPLICATE}  # of one move, where the other isn't allowed


def allowed(kind: Kind, state: State | None) -> bool:
    """What RULES says; a scheduled task is a ready one to all but a claim."""
    if state is State.SCHEDULED and kind is not Kind.LEASED:
        state = State.READY
    return state in RULES[kind].after


@pytest.mark.parametrize("move", [*ON_LEASES, *ON_TASKS])
@pytest.mark.parametrize("state", STATES)
def test_a_move_happens_where_the_rules_allow_it_and_nowhere_else(
    store: Store, clock: FakeClock, state: str, move: str
) -> None:
    put, stands = STATES[state]
    lease = put(store, clock)
    clock.set(PRESENT)
    last = store.history([lease.life])[-1].position
    # By the clock's doing, which counts before anybody writes it down.
    found = store.find(lease.life)
    assert (as_of(found, clock.now()).state if found else None) is stands
    kind, act = (ON_LEASES | ON_TASKS)[move]

    answer = act(store, lease)

    held = store.held(QUEUE, "a", "")
    lives = {lease.life} | ({held.life} if held else set())
    history = store.history(lives)
    new = [entry.kind for entry in history if entry.position > last and not by_clock(entry)]
    way = kind if allowed(kind, stands) else INSTEAD.get(kind)
    assert new == ([way] if way and allowed(way, stands) else [])
    if move in ON_LEASES:
        assert bool(answer) is bool(new)
    for life in lives:
        assert store.find(life) == fold_all(entry for entry in history if entry.life == life)


def by_clock(entry: Transition) -> bool:
    """Whether the clock did it, and the move only wrote it down."""
    return entry.kind in (Kind.LAPSED, Kind.DEAD) and not entry.facts


@pytest.mark.parametrize("move", ON_LEASES)
def test_a_lease_that_was_superseded_moves_nothing(
    store: Store, clock: FakeClock, move: str
) -> None:
    lease = superseded(store, clock)
    before = store.find(lease.life), store.history([lease.life])
    clock.set(PRESENT)

    assert not ON_LEASES[move][1](store, lease)

    assert (store.find(lease.life), store.history([lease.life])) == before
