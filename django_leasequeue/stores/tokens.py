"""The one sequence that numbers log rows, tasks and leases: where it stands, and moving it on."""

from __future__ import annotations

import re
from typing import Final

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Max

from ..models import Task, TaskTransition

LOG: Final = TaskTransition._meta.db_table


def given_out(using: str) -> int:
    """The highest token or position in log and projection; 0 where there is none."""
    tasks = Task.objects.using(using)
    token = tasks.aggregate(token=Max("token"))["token"] or 0
    return max(TaskTransition.objects.using(using).newest(), tasks.newest(), token)


def standing(using: str) -> int:
    """The number that the sequence gave out last; 0 where it gave none."""
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # Unlike the sequence itself, to be asked by whoever may only use it.
            cursor.execute("SELECT pg_sequence_last_value(%s::regclass)", [f"{LOG}_id_seq"])
        elif connection.vendor == "sqlite":
            cursor.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = %s", [LOG])
        else:
            # What information_schema says may be a day old on MySQL.
            cursor.execute(f"SHOW CREATE TABLE {LOG}")
            found = re.search(r"\bAUTO_INCREMENT=(\d+)", cursor.fetchone()[1])
            return int(found[1]) - 1 if found else 0
        return cursor.fetchone()[0] or 0


def behind(using: str) -> tuple[int, int] | None:
    """Where the sequence stands and what was given out; None where it isn't behind that.

    Reads all of the projection.
    """
    highest = given_out(using)  # first: the sequence moves on meanwhile
    stands = standing(using)
    return (stands, highest) if stands < highest else None


def advance(using: str, to: int) -> None:
    """Let the sequence go on behind *to*; it never goes back."""
    connection = connections[using]
    with transaction.atomic(using=using):
        if connection.vendor == "postgresql":
            # Nobody draws a number between the look and the leap.
            with connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {LOG} IN EXCLUSIVE MODE")
        if standing(using) < to:
            leap(connection, to)


def leap(connection: BaseDatabaseWrapper, to: int) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT setval(%s::regclass, %s)", [f"{LOG}_id_seq", to])
        elif connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [LOG])
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [LOG, to])
        else:
            cursor.execute(f"ALTER TABLE {LOG} AUTO_INCREMENT = {to + 1:d}")
