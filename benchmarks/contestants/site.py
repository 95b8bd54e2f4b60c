"""Django's settings for the contestants that need them; BENCH_BACKEND says which."""

from __future__ import annotations

import importlib.util
import os

SECRET_KEY = "of a benchmark"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", ""),
        "USER": os.environ.get("PGUSER", ""),
        "HOST": os.environ.get("PGHOST", ""),
        "CONN_MAX_AGE": None,
    }
}
LOGGING = {"version": 1, "root": {"level": "WARNING", "handlers": []}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")  # the backport, for Django 5.2

OURS = "django_leasequeue.backend.LeaseQueueBackend"
BACKEND = os.environ.get("BENCH_BACKEND", OURS)
INSTALLED_APPS.append(BACKEND.partition(".")[0])
OPTIONS = {"task_modules": ["benchmarks"]} if BACKEND == OURS else {}
TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": OPTIONS}}
