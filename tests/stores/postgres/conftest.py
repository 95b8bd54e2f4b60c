"""A store on a real PostgreSQL, and its tasks, on a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_leasequeue.lease import Lease
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.stores.base import Failure
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind, Transition
from tests.builders import a_task


class HandClock:
    """Stands still until the test sets it, in seconds from the start."""

    def __init__(self) -> None:
        self.start = self.moment = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def set(self, seconds: float) -> None:
        self.moment = self.start + timedelta(seconds=seconds)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(transactional_db: None, clock: HandClock) -> PostgresStore:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL is not a PostgreSQL")
    return PostgresStore("default", clock)


def a_lease(store: PostgresStore, id: str = "a", **changes: object) -> Lease:
    """The lease on a new task of queue q, held by worker w."""
    store.enqueue("q", [a_task(id, **changes)])
    [lease] = store.claim("q", worker="w", limit=1)
    assert lease.id == id
    return lease


def a_failure(lease: Lease, kind: Kind = Kind.DEAD, seconds: float = 0) -> Failure:
    error = '{"type":"E","message":"m","traceback":"","summary":"E: m"}'
    return Failure(lease=lease, kind=kind, error=error, delay=timedelta(seconds=seconds))


def a_dead_letter(store: PostgresStore, id: str = "a", **changes: object) -> Lease:
    """The last lease of a task that failed for good."""
    lease = a_lease(store, id, **changes)
    store.fail([a_failure(lease)])
    return lease


def log() -> list[Transition]:
    return [row.transition for row in TaskTransition.objects.order_by("id")]


def kinds() -> list[str]:
    return [str(transition.kind) for transition in log()]


def projection() -> list[dict[str, object]]:
    return list(Task.objects.order_by("seq").values())
