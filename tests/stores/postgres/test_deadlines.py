"""A lease is over at the very instant of its deadline, for every call, whoever wrote it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_leasequeue.lease import Lease
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind

from .conftest import HandClock, a_failure, a_lease, kinds, projection

CALLS: dict[str, Callable[[PostgresStore, Lease], Any]] = {
    "complete": lambda store, lease: store.complete([Finish(lease=lease, result="null")]),
    "fail": lambda store, lease: store.fail([a_failure(lease, Kind.RETRIED)]),
    "release": lambda store, lease: store.release([lease]),
    "heartbeat": lambda store, lease: store.heartbeat(lease, "1"),
    "adopt": lambda store, lease: store.adopt("q", "w"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_at_the_deadline_is_refused_and_changes_nothing(
    store: PostgresStore, clock: HandClock, name: str
) -> None:
    """G8"""
    lease = a_lease(store)
    before = projection()

    clock.set(30)

    assert not CALLS[name](store, lease)
    assert (projection(), kinds()) == (before, ["enqueued", "leased"])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_a_microsecond_before_the_deadline_counts(
    store: PostgresStore, clock: HandClock, name: str
) -> None:
    """G8"""
    lease = a_lease(store)

    clock.set(29.999999)

    assert CALLS[name](store, lease)
    assert len(kinds()) == 3
