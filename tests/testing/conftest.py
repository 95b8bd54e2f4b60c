"""The backend ``default`` in each database, inside a transaction that is rolled back."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.databases import ALIASES, IDS

from . import tasks

BACKEND: Final = "django_leasequeue.backend.LeaseQueueBackend"


def tasks_setting(using: str, backend: str = BACKEND) -> dict[str, Any]:
    policy = {"max_attempts": 3, "backoff_base": 60}
    options = {"using": using, "task_modules": ["tests.testing"], "policy": policy}
    return {"default": {"BACKEND": backend, "QUEUES": ["mail", "other"], "OPTIONS": options}}


@pytest.fixture
def fresh_tasks() -> None:
    tasks.told.clear()


@pytest.fixture(
    params=[
        pytest.param(alias, marks=pytest.mark.django_db(databases=[alias]), id=id)
        for alias, id in zip(ALIASES, IDS, strict=True)
    ]
)
def using(request: pytest.FixtureRequest, settings: Any, db: None, fresh_tasks: None) -> str:
    """The alias of the backend's database."""
    alias: str = request.param
    settings.TASKS = tasks_setting(alias)
    return alias
