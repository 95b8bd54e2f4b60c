"""django-tasks-db, the database backend that came with django-tasks."""

from __future__ import annotations

from typing import Final

import django
from django.core.management import call_command
from django.db import connection

PACKAGES: Final = ["django-tasks-db", "Django", "psycopg"]


def prepare() -> None:
    django.setup()
    call_command("migrate", verbosity=0)


def empty() -> None:
    from django_tasks_db.models import DBTaskResult  # noqa: PLC0415  after the set-up

    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {DBTaskResult._meta.db_table}")


def enqueue(number: int) -> None:
    from .django_tasks import noop  # noqa: PLC0415  after the set-up

    noop.enqueue(number)


def workers(processes: int) -> list[list[str]]:
    command = ["-m", "django", "db_worker", "--no-startup-delay", "--interval", "0.1", "-v", "0"]
    return [command] * processes
