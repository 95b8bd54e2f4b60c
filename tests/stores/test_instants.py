"""Instants read and compare alike on every database, however they are written in a filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connections
from django.test.utils import override_settings

from django_leasequeue import Queue
from django_leasequeue.models import Task
from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from tests.builders import QUEUE, a_task
from tests.conftest import MakeQueue, on_databases
from tests.stores.conftest import committed

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue()


@on_databases
@pytest.mark.parametrize(
    "written",
    [AT, AT.astimezone(timezone(timedelta(hours=9))), "2026-01-01 00:00:00", "2026-01-01T00:00Z"],
)
def test_a_filter_takes_an_instant_or_its_text(queue: Queue, written: Any) -> None:
    queue.enqueue({})
    tasks = Task.objects.using(queue.using)

    assert tasks.filter(visible_at__gte=written).count() == 1
    assert tasks.filter(visible_at__lt=written).count() == 0
    assert tasks.get(visible_at=written).visible_at == AT


@committed
def test_the_clock_is_exact_to_the_microsecond(alias: str) -> None:
    store = MemoryStore() if alias == "memory" else store_for(alias)

    instants = {store.now() for _ in range(50)}

    assert all(instant.tzinfo is UTC for instant in instants)
    assert any(instant.microsecond % 1000 for instant in instants)


@committed
@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_come_back_as_they_were_whatever_the_zone(
    store: Store, clock: FakeClock, use_tz: bool
) -> None:
    at = clock.now() + timedelta(days=300, microseconds=1)
    with override_settings(USE_TZ=use_tz, TIME_ZONE="America/New_York"):
        if store.using in connections:
            connections[store.using].close()  # a session takes its zone when it is opened
        store.enqueue(QUEUE, [a_task(run_after=at)])
        held = store.held(QUEUE, "a", "")

    assert held
    assert (held.visible_at, held.visible_at.tzinfo) == (at, UTC)
