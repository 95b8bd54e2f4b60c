"""Whether a session waits for what another one holds."""

from __future__ import annotations

from django.db import connections

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()",
    "mysql": "SELECT variable_value FROM information_schema.global_status"
    " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


def someone_waits(using: str) -> bool:
    with connections[using].cursor() as cursor:
        cursor.execute(WAITING[connections[using].vendor])
        [count] = cursor.fetchone()
    return int(count) > 0
