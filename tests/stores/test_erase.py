"""Erasing a life: nothing that it knew is left, all that happened is."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any
from uuid import uuid4

import pytest

from django_leasequeue.models import Effect, Task, TaskTransition
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind, fold_all, json_text
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
)

SECRET = "4711-secret"


def a_secret_past(store: Store, clock: FakeClock) -> Any:
    """The life of a task that knew a secret, told it, and is about to fail or succeed with it."""
    lease = a_lease(store, payload=json_text({"card": SECRET}))
    store.heartbeat(lease, json_text(SECRET))
    store.fail([a_secret_failure(lease)])
    return a_claim(store)


def a_secret_failure(lease: Any, kind: Kind = Kind.RETRIED) -> Any:
    text = {"type": SECRET, "message": SECRET, "traceback": SECRET, "summary": SECRET}
    return replace(a_failure(lease, kind), error=json_text({**text}))


def everything(store: Store) -> str:
    """All that the store's tables hold, as text."""
    if isinstance(store, MemoryStore):
        return repr([*map(astuple, store.transitions), *map(astuple, store.tasks.values())])
    models = (Task, TaskTransition, Effect)
    return repr([list(model.objects.using(store.using).values()) for model in models])


@pytest.mark.parametrize("end", ["leased", "acked", "dead", "dropped", "cancelled"])
def test_nothing_that_a_life_knew_is_left(store: Store, clock: FakeClock, end: str) -> None:
    """G60: In log, projection and effects; and the projection is the fold of the log as before."""
    lease = a_secret_past(store, clock)
    if not isinstance(store, MemoryStore):
        Effect.objects.using(store.using).create(
            life=lease.life, name="n", token=1, started_at=clock.now(), result=json_text(SECRET)
        )
    if end == "acked":
        store.complete([a_finish(lease, json_text(SECRET))])
    elif end in ("dead", "dropped"):
        store.fail([a_secret_failure(lease, Kind(end))])
    elif end == "cancelled":
        cancelled(store)
    assert SECRET in everything(store)
    told = [(row.kind, row.at, row.attempt, row.token) for row in store.history([lease.life])]

    assert erased(store, lease.life)

    assert SECRET not in everything(store)
    history = store.history([lease.life])
    assert [(row.kind, row.at, row.attempt, row.token) for row in history[:-1]] == told
    assert history[-1].kind is Kind.ERASED
    assert history[-1].facts == {"by": "7 ada", "reason": "she asked for it"}
    assert fold_all(history) == store.find(lease.life)


def test_a_lease_is_none_the_worse_for_it(store: Store, clock: FakeClock) -> None:
    lease = a_secret_past(store, clock)

    erased(store, lease.life)

    assert store.lost_reason(lease) is None
    assert store.complete([a_finish(lease)]) == {lease.token}


def test_what_is_delivered_afterwards_has_no_payload(store: Store, clock: FakeClock) -> None:
    a_dead_letter(store, payload=json_text(SECRET))
    [letter] = store.dead(QUEUE, tenant="")
    erased(store, letter.life)

    store.redrive(QUEUE, ["a"], tenant="", by=None, reason=None)

    assert a_claim(store).payload is None


def test_other_lives_and_other_queues_are_left_alone(store: Store, clock: FakeClock) -> None:
    lease = a_secret_past(store, clock)
    other = a_task("b", payload=json_text(SECRET))
    store.enqueue(QUEUE, [other])
    if not isinstance(store, MemoryStore):
        Effect.objects.using(store.using).create(
            life=other.life, name="n", token=1, started_at=clock.now(), result=json_text(SECRET)
        )
    before = everything(store)

    assert not store.erase("other", lease.life, by=None, reason=None)
    assert not erased(store, uuid4())
    assert everything(store) == before
    erased(store, lease.life)

    [held] = [store.held(QUEUE, "b", "")]
    assert held is not None
    assert held.payload == json_text(SECRET)
    if not isinstance(store, MemoryStore):
        assert Effect.objects.using(store.using).get().result == json_text(SECRET)
