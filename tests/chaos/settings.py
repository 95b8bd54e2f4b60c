"""Settings of the workers and the clients: one site, and what its queues allow."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Final

import environ

SECRET_KEY = "of the chaos"
DATABASES = {"default": environ.Env.db_url_config(os.environ["DATABASE_URL"])}
INSTALLED_APPS = ["django_leasequeue"]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")  # the backport, for Django 5.2
USE_TZ = True

VISIBILITY: Final = 2.0  # seconds; what is paused is paused longer
POLICY: Final[dict[str, Any]] = {
    "visibility": VISIBILITY,
    "max_attempts": 4,
    "max_lease": 20,
    "backoff_base": 0.1,
}


def backend(*queues: str, **options: Any) -> dict[str, Any]:
    common = {"task_modules": ["tests.chaos"], "policy": POLICY, "poll_interval": 1}
    return {
        "BACKEND": "django_leasequeue.backend.LeaseQueueBackend",
        "QUEUES": queues,
        "OPTIONS": common | options,
    }


TASKS = {
    "default": backend("work", "strict", queues={"strict": POLICY | {"on_fatal": "drop"}}),
    "brief": backend("brief", retention=3),  # its log forgets while the rest goes on
    "steady": backend("steady", retention=60, policy={"backoff_base": 0.1}),  # of the soak
}
