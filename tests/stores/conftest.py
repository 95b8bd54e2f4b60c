"""Every store, one after the other, on a clock that only moves when a test moves it."""

from __future__ import annotations

import pytest

from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from tests.databases import ALIASES, IDS, on_all

committed = on_all


@pytest.fixture(params=["memory", *ALIASES], ids=["memory", *IDS])
def alias(request: pytest.FixtureRequest) -> str:
    """Which store is tested: a database's, or the one in memory."""
    named: str = request.param
    return named


@pytest.fixture
def store(alias: str, clock: FakeClock) -> Store:
    return MemoryStore(clock) if alias == "memory" else store_for(alias, clock)


@pytest.fixture
def other_store(store: Store, clock: FakeClock) -> Store:
    """A second handle on the same tasks, as another process would have it."""
    return store if isinstance(store, MemoryStore) else store_for(store.using, clock)
