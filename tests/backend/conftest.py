"""The backend over each database, on the tests' clock."""

from __future__ import annotations

from typing import Any

import pytest

from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import task_backends
from django_leasequeue.testing.clock import FakeClock
from tests.databases import ALIASES, IDS

OURS = "django_leasequeue.backend.LeaseQueueBackend"


@pytest.fixture(params=ALIASES, ids=IDS)
def backend(request: pytest.FixtureRequest, settings: Any, clock: FakeClock) -> LeaseQueueBackend:
    """The backend ``default``, open to all queues; its tasks may lie in tests.backend."""
    request.getfixturevalue("transactional_db")
    options = {"using": request.param, "task_modules": ["tests.backend"]}
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": options}}
    backend = task_backends["default"]
    assert isinstance(backend, LeaseQueueBackend)
    backend.clock = clock
    return backend
