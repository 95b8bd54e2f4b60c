"""B22: "duplicate" may not be decided on what another transaction has yet to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction

from django_leasequeue import Queue
from tests.databases import ALIASES, NAMES
from tests.waiting import PATIENCE, blocked_sessions, in_thread, wait_for

TWO_WRITERS = [
    pytest.param(
        alias, marks=pytest.mark.django_db(databases=[alias], transaction=True), id=NAMES[alias]
    )
    for alias in ALIASES
    if alias != "sqlite"
]


@pytest.fixture(params=TWO_WRITERS)
def queue(request: pytest.FixtureRequest, transactional_db: None) -> Queue:
    if connections[request.param].vendor == "sqlite":
        pytest.skip("two writers at once need a server: DATABASE_URL names none")
    return Queue("emails", using=request.param)


def second_enqueue_waits_for_first(
    queue: Queue, end: Callable[[], None], **names: Any
) -> tuple[Any, Any]:
    """The first enqueue's transaction ends by *end* while the second one waits for it."""
    first: list[Any] = []
    stored, go_on = threading.Event(), threading.Event()

    def enqueue_and_hold() -> None:
        with transaction.atomic(using=queue.using):
            first.append(queue.enqueue({"n": 1}, **names))
            stored.set()
            go_on.wait(PATIENCE)
            end()

    holding = in_thread(enqueue_and_hold)
    assert stored.wait(PATIENCE)
    second = in_thread(lambda: queue.enqueue({"n": 2}, **names))
    wait_for(lambda: blocked_sessions(queue.using) > 0)
    go_on.set()
    holding.exception(10)
    return first[0], second.result(PATIENCE)


def undo() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("names", [{"dedupe_key": "k"}, {"id": "a"}], ids=["key", "id"])
def test_after_a_rollback_the_second_is_stored(queue: Queue, names: dict[str, str]) -> None:
    """G2, G4"""
    first, second = second_enqueue_waits_for_first(queue, undo, **names)

    assert not second.duplicate
    assert second.life != first.life
    [lease] = queue.claim(worker="w", limit=10)
    assert (lease.life, lease.payload) == (second.life, {"n": 2})


@pytest.mark.parametrize("names", [{"dedupe_key": "k"}, {"id": "a"}], ids=["key", "id"])
def test_after_a_commit_the_second_is_a_duplicate(queue: Queue, names: dict[str, str]) -> None:
    """G2, G4"""
    first, second = second_enqueue_waits_for_first(queue, lambda: None, **names)

    assert second.duplicate
    assert second.life == first.life
    kinds = [str(transition.kind) for transition in queue.store.history([first.life])]
    assert kinds == ["enqueued", "duplicate"]
