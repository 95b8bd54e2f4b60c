"""Columns that mean the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class ExactCharField(models.CharField):  # type: ignore[type-arg]
    """Text compared byte for byte: no case folding, no padding, whatever the database's default."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        return super().db_parameters(connection) | {"collation": exact_collation(connection)}


def exact_collation(connection: BaseDatabaseWrapper) -> str | None:
    if connection.vendor == "postgresql":
        return "C"
    if connection.vendor == "mysql":
        # The usual ..._bin collations pad with spaces: 'a' = 'a '.
        mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
        return "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
    return None  # SQLite compares bytes unless told otherwise


class Instant(models.DateTimeField):  # type: ignore[type-arg]
    """A moment in UTC, exact to the microsecond: aware in Python whatever USE_TZ and TIME_ZONE say.

    A queue's deadlines may not move because a site switches its zone, and a local time that occurs
    twice in autumn must not make one deadline of two.
    """

    def get_prep_value(self, value: Any) -> Any:
        value = models.Field.get_prep_value(self, value)
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return self.to_python(value)

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        moment = value if prepared else self.get_prep_value(value)
        if moment is None or connection.vendor == "postgresql":
            return moment
        return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")

    def from_db_value(self, value: datetime | None, *_: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value else None

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # PostgreSQL answers in the session's zone, and Django cuts that zone off without USE_TZ.
        if compiler.connection.vendor == "postgresql":
            return f"({sql} AT TIME ZONE 'UTC')", params
        return sql, params

    def to_python(self, value: Any) -> Any:
        moment = super().to_python(value)
        return self.to_utc(moment) if moment else moment

    @staticmethod
    def to_utc(value: datetime) -> datetime:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
