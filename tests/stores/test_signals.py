"""What happened to a task is told after the commit, once, by whoever wrote it down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_leasequeue import signals
from django_leasequeue.stores.base import Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind
from tests.builders import QUEUE, a_claim, a_dead_letter, a_failure, a_lease, redriven
from tests.databases import ALIASES, IDS
from tests.stores.conftest import committed
from tests.stores.test_append_only import fill_log

pytestmark = committed


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The names of the signals that were sent, with their arguments."""
    sent: list[tuple[str, dict[str, Any]]] = []
    names = ("task_retried", "task_dead", "task_redriven")
    receivers = {}
    for name in names:

        def receive(name: str = name, **arguments: Any) -> None:
            sent.append((name, arguments))

        receivers[name] = receive
        getattr(signals, name).connect(receive)
    yield sent
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)


def test_a_lapse_is_told_by_the_claim_that_wrote_it_down(
    store: Store, clock: FakeClock, told: list[Any]
) -> None:
    lease = a_lease(store, tenant="x", worker="w1")
    clock.set(30)
    assert told == []

    a_claim(store, worker="w2")

    [(name, arguments)] = told
    assert name == "task_retried"
    del arguments["signal"], arguments["sender"]
    assert arguments == {
        "using": store.using,
        "queue": QUEUE,
        "tenant": "x",
        "id": "a",
        "life": lease.life,
        "attempt": 1,
        "token": lease.token,
        "worker": "w1",
        "error": None,
    }


def test_failures_deaths_and_redrives_are_told_with_their_errors(
    store: Store, told: list[Any]
) -> None:
    store.fail([a_failure(a_lease(store))])
    store.fail([a_failure(a_claim(store), Kind.DEAD)])
    redriven(store, "a")

    assert [(name, arguments["attempt"]) for name, arguments in told] == [
        ("task_retried", 1),
        ("task_dead", 2),
        ("task_redriven", 0),
    ]
    errors = [arguments["error"] and arguments["error"]["summary"] for _, arguments in told]
    assert errors == ["E: m", "E: m", None]


@pytest.mark.parametrize("alias", ALIASES, indirect=True, ids=IDS)
def test_nothing_is_told_of_a_move_that_is_rolled_back(store: Store, told: list[Any]) -> None:
    a_dead_letter(store)
    told.clear()

    with transaction.atomic(using=store.using):
        redriven(store, "a")
        assert told == []
        transaction.set_rollback(True, using=store.using)

    assert told == []


@pytest.mark.parametrize("alias", ["memory"], indirect=True)
def test_nor_of_one_that_fails_half_way_in_memory(store: Store, told: list[Any]) -> None:
    leases = [a_lease(store, "one"), a_lease(store, "two")]
    fill_log(store, 1)

    with pytest.raises(DatabaseError, match="the log is full"):
        store.fail([a_failure(lease) for lease in leases])
    store.fail([a_failure(leases[1])])

    assert [arguments["id"] for _, arguments in told] == ["two"]


def test_a_receiver_finds_the_move_made_and_may_make_another(store: Store) -> None:
    """In memory too: a receiver runs when the move is over."""
    seen = []

    def redrive_at_once(**arguments: Any) -> None:
        seen.append(redriven(store, arguments["id"]))

    signals.task_dead.connect(redrive_at_once)
    try:
        a_dead_letter(store)
    finally:
        signals.task_dead.disconnect(redrive_at_once)

    assert seen == [(1, {})]
    assert a_claim(store).attempt == 1
