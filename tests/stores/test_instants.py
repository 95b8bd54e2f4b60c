"""Instants read and compare alike on every database, however they are written in a filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.models import Task
from tests.conftest import MakeQueue, on_databases

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
