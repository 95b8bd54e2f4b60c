"""The suite that any implementation can be run against: on the model, and on each database."""

from __future__ import annotations

from typing import ClassVar

import pytest

from django_leasequeue import Queue, QueuePolicy
from django_leasequeue.stores.base import Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.testing.conformance import WorkQueueConformance
from django_leasequeue.testing.memory import MemoryQueue
from tests.databases import ALIASES


class TestInMemory(WorkQueueConformance):
    store: Store | None = None

    def make_queue(
        self, name: str = "emails", *, policy: QueuePolicy | None = None, clock: FakeClock
    ) -> Queue:
        queue = MemoryQueue(name, policy=policy, clock=clock, store=self.store)
        self.store = queue.store
        return queue


class OnADatabase(WorkQueueConformance):
    using: ClassVar[str]

    def make_queue(
        self, name: str = "emails", *, policy: QueuePolicy | None = None, clock: FakeClock
    ) -> Queue:
        return Queue(name, using=self.using, policy=policy, clock=clock)

    @pytest.fixture
    def committed(self, transactional_db: None) -> None:
        """Only threads need it: all other tests are rolled back, which is fast."""


@pytest.mark.django_db(databases=["default"])
class TestOnPostgreSQL(OnADatabase):
    using = "default"


@pytest.mark.django_db(databases=["sqlite"])
class TestOnSQLite(OnADatabase):
    using = "sqlite"


@pytest.mark.skipif("mariadb" not in ALIASES, reason="no MariaDB")
@pytest.mark.django_db(databases=["mariadb"])
class TestOnMariaDB(OnADatabase):
    using = "mariadb"
