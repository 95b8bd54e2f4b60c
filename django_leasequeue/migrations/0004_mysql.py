"""What MariaDB and MySQL have no words for in Django: text of any kind, and indexes by lane.

Their text columns take the characters of the database, which may be a few only; their indexes have
no conditions, so that the lane or the state has to stand among the columns. (MariaDB did without
the index on expressions altogether.)
"""

from __future__ import annotations

from typing import Any, Final

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ANY_TEXT: Final = "longtext CHARACTER SET utf8mb4"
TEXTS: Final = {
    "leasequeue_task": {
        "path": "NOT NULL",
        "payload": "NOT NULL",
        "details": "NULL",
        "last_error": "NOT NULL",
    },
    "leasequeue_transition": {"payload": "NULL", "data": "NULL"},
    "leasequeue_effect": {"result": "NULL"},
}
INDEXES: Final = {
    "leasequeue_task_now": "queue, lane, tenant, priority DESC, visible_at, seq",
    "leasequeue_task_later": "queue, lane, visible_at, seq",
    "leasequeue_task_dead": "queue, state, seq",
}


def suit_mysql(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    if connection.vendor != "mysql":
        return
    for table, columns in TEXTS.items():
        changes = [f"MODIFY {name} {ANY_TEXT} {null}" for name, null in columns.items()]
        schema_editor.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    with connection.cursor() as cursor:
        there = connection.introspection.get_constraints(cursor, "leasequeue_task")
    changes = [f"DROP INDEX {name}" for name in INDEXES if name in there]
    changes += [f"ADD INDEX {name} ({columns})" for name, columns in INDEXES.items()]
    schema_editor.execute(f"ALTER TABLE leasequeue_task {', '.join(changes)}")


def put_gate(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Claims share this row, and a pause waits for them: see stores/pauses.py."""
    if schema_editor.connection.vendor == "mysql":
        pause = apps.get_model("leasequeue", "Pause")
        gate = pause(queue="", paused_queue="", paused_at="2000-01-01 00:00:00+00:00")
        pauses = pause.objects.using(schema_editor.connection.alias)
        pauses.bulk_create([gate], ignore_conflicts=True)


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0003_postgresql")]

    operations = [
        migrations.RunPython(suit_mysql, migrations.RunPython.noop, atomic=False),
        migrations.RunPython(put_gate, migrations.RunPython.noop),
    ]
