"""Ours: a @task, its enqueue(), and manage.py leasequeue_worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import django
from django.core.management import call_command
from django.db import connection

from django_leasequeue import NewTask, Queue

PACKAGES: Final = ["Django", "psycopg"]


def prepare() -> None:
    django.setup()
    call_command("migrate", verbosity=0)


def empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE leasequeue_task, leasequeue_transition")


def enqueue(number: int) -> None:
    from .leasequeue_tasks import noop  # noqa: PLC0415  after the set-up

    noop.enqueue(number)


def enqueue_many(numbers: Sequence[int]) -> None:
    enqueue_calls("noop", numbers)


def enqueue_computing(numbers: Sequence[int]) -> None:
    enqueue_calls("compute", numbers)


def enqueue_calls(name: str, numbers: Sequence[int]) -> None:
    path = f"benchmarks.contestants.leasequeue_tasks.{name}"
    calls = ({"args": [number], "kwargs": {}} for number in numbers)
    Queue("default").enqueue_many(NewTask(payload=call, path=path) for call in calls)


def workers(processes: int) -> list[list[str]]:
    return [["-m", "django", "leasequeue_worker", "--processes", str(processes), "-v", "0"]]
