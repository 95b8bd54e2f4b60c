"""Ours: a @task, its enqueue(), and manage.py leasequeue_worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import django
from django.core.management import call_command
from django.db import connection

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
    from .leasequeue_tasks import noop  # noqa: PLC0415  after the set-up

    noop.enqueue_many([number] for number in numbers)


def enqueue_computing(numbers: Sequence[int]) -> None:
    from .leasequeue_tasks import compute  # noqa: PLC0415  after the set-up

    compute.enqueue_many([number] for number in numbers)


def workers(processes: int) -> list[list[str]]:
    return [["-m", "django", "leasequeue_worker", "--processes", str(processes), "-v", "0"]]
