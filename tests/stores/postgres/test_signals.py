"""Each thing that happened is told once, by the call that wrote it down, after its commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from django_leasequeue import signals
from django_leasequeue.stores.database import DatabaseStore
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind
from tests.builders import a_task

from .conftest import HandClock, a_dead_letter, a_failure, a_lease

Told = list[tuple[str, str, int, str | None]]
NAMES = ("task_retried", "task_dead", "task_redriven")


@pytest.fixture
def told() -> Iterator[Told]:
    """What was told: signal, task, attempt, the error in one line."""
    heard: Told = []

    def listen(name: str) -> Any:
        def receiver(*, id: str, attempt: int, error: Any, **_: Any) -> None:
            heard.append((name, id, attempt, error["summary"] if error else None))

        return receiver

    receivers = {name: listen(name) for name in NAMES}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    yield heard
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


def test_a_failure_tells_what_follows(store: PostgresStore, told: Told) -> None:
    for id, kind in (("a", Kind.RETRIED), ("b", Kind.DEAD), ("c", Kind.DROPPED)):
        store.fail([a_failure(a_lease(store, id), kind, 60)])

    assert told == [("task_retried", "a", 1, "E: m"), ("task_dead", "b", 1, "E: m")]


@pytest.mark.parametrize("by", ["settle", "claim", "duplicate", "redrive"])
def test_whoever_writes_a_death_by_the_clock_down_tells_it_once(
    store: PostgresStore, clock: HandClock, told: Told, by: str
) -> None:
    a_lease(store, dedupe_key="n", max_attempts=1)
    clock.set(30)

    for _ in range(2):
        match by:
            case "settle":
                store.settle("q")
            case "claim":
                store.claim("q", worker="w", limit=1)
            case "duplicate":
                store.enqueue("q", [a_task("b", dedupe_key="n")])
            case _:
                store.redrive("q", ["a"], tenant="", by=None, reason=None)

    redriven = [("task_redriven", "a", 0, None)] if by == "redrive" else []
    assert told == [("task_dead", "a", 1, None), *redriven]


def test_an_adoption_tells_what_became_of_each_task(store: PostgresStore, told: Told) -> None:
    a_lease(store, "a")
    a_lease(store, "b", max_attempts=1)

    store.adopt("q", "w")

    assert told == [("task_retried", "a", 1, None), ("task_dead", "b", 1, None)]


def test_what_is_rolled_back_is_not_told(store: PostgresStore, told: Told) -> None:
    a_dead_letter(store)
    told.clear()

    with transaction.atomic():
        store.redrive("q", ["a"], tenant="", by=None, reason=None)
        assert told == []
        transaction.set_rollback(True)

    assert told == []


def test_what_one_transaction_tells_is_not_compared_with_all_it_told_before(
    store: PostgresStore, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand that would be fifty million comparisons."""
    for id in "abc":
        a_dead_letter(store, id)
    told.clear()
    monkeypatch.delattr(DatabaseStore, "is_pending")

    with transaction.atomic():
        store.redrive("q", ["a", "b", "c"], tenant="", by=None, reason=None)

    assert len(told) == 3
