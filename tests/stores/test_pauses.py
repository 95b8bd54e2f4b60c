"""A pause and a claim at the same time, where a row of the pauses keeps them apart."""

from __future__ import annotations

import pytest

from django_leasequeue.stores.base import Store
from tests.builders import QUEUE, a_claim, a_task
from tests.databases import ALIASES
from tests.stores.conftest import committed
from tests.waiting import PATIENCE, blocked_sessions, in_thread, wait_for

from .test_mariadb import elsewhere

pytestmark = [
    committed,
    pytest.mark.skipif("mariadb" not in ALIASES, reason="no MariaDB"),
    pytest.mark.parametrize("alias", ["mariadb"], indirect=True),
]


def test_a_pause_waits_for_the_claims_in_flight(store: Store) -> None:
    """G66: None of them leases anything once it has returned."""
    store.pause("another queue", by=None, reason=None)  # the test has emptied the tables
    store.enqueue(QUEUE, [a_task(id) for id in "abc"])

    with elsewhere(lambda: a_claim(store)) as end:
        late = in_thread(lambda: store.pause(QUEUE, by=None, reason=None))
        wait_for(lambda: late.done() or blocked_sessions("mariadb") > 0)
        assert not late.done()
        end()

    assert late.result(PATIENCE) is True
    assert store.claim(QUEUE, worker="w", limit=2) == []


def test_claims_don_t_wait_for_each_other(store: Store) -> None:
    store.pause("another queue", by=None, reason=None)
    store.enqueue(QUEUE, [a_task(id) for id in "abc"])
    a_claim(store)  # the first one writes whose turn it is

    with elsewhere(lambda: a_claim(store, "b")):
        assert in_thread(lambda: store.claim(QUEUE, worker="w", limit=2)).result(PATIENCE)
