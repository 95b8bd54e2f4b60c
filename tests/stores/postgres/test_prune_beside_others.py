"""Pruning beside what goes on meanwhile, stepped by hand."""

from __future__ import annotations

import threading
from typing import Final

from django.db import transaction

from django_leasequeue.retention import Walk
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import FORGETTABLE
from tests.waiting import PATIENCE, blocked_sessions, in_thread, wait_for

from .conftest import HandClock, a_lease, kinds

ALL: Final = dict.fromkeys(FORGETTABLE, 0.0)


def test_one_prunes_at_a_time(store: PostgresStore, clock: HandClock) -> None:
    store.complete([Finish(lease=a_lease(store), result="1")])
    clock.set(1)

    with transaction.atomic():
        walk, other = Walk(store, ALL), Walk(store, ALL)
        walk.step()
        assert in_thread(other.step).result(PATIENCE) == (0, False)
        assert other.busy

    assert kinds() == []
    assert not walk.busy


def test_what_is_committed_behind_a_walk_is_found_by_the_next_one(
    store: PostgresStore, clock: HandClock
) -> None:
    """G57"""
    lease = a_lease(store)
    written, pruned = threading.Event(), threading.Event()

    def finish_slowly() -> None:
        with transaction.atomic():
            store.complete([Finish(lease=lease, result="1")])
            written.set()
            assert pruned.wait(PATIENCE)

    finishing = in_thread(finish_slowly)
    assert written.wait(PATIENCE)
    store.complete([Finish(lease=a_lease(store, "b"), result="1")])
    clock.set(1)
    walk = Walk(store, ALL)
    assert walk.step()[0] == 3  # none of what isn't committed, and it waits for nobody
    pruned.set()
    finishing.result(PATIENCE)
    assert walk.step()[0] == 0

    assert Walk(store, ALL).step()[0] == 3
    assert kinds() == []


def test_nothing_is_erased_of_what_is_being_pruned(store: PostgresStore, clock: HandClock) -> None:
    """G60: The row that says so would be all that is left of the life."""
    lease = a_lease(store)
    store.complete([Finish(lease=lease, result="1")])
    clock.set(1)

    with transaction.atomic():
        Walk(store, ALL).step()
        erasing = in_thread(lambda: store.erase("q", lease.life, by=None, reason=None))
        wait_for(lambda: blocked_sessions("default") == 1)

    assert erasing.result(PATIENCE) is False
    assert kinds() == []
