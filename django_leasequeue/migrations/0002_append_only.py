"""What PostgreSQL has no words for in Django: the log's guard, and how the tables are stored."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


class PostgresSQL(migrations.RunSQL):
    """SQL for PostgreSQL; other databases pass it by."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, *states: Any
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, *states)


# Row by row only: TRUNCATE stays possible, for flush and for the teardown of tests.
APPEND_ONLY = """
CREATE FUNCTION leasequeue_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'leasequeue_transition is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER leasequeue_append_only BEFORE UPDATE OR DELETE ON leasequeue_transition
    FOR EACH ROW EXECUTE FUNCTION leasequeue_refuse();
"""
NOT_APPEND_ONLY = """
DROP TRIGGER leasequeue_append_only ON leasequeue_transition;
DROP FUNCTION leasequeue_refuse();
"""

# Rows live shortly and change often. Left to the defaults, a fifth of the table may be dead before
# anyone cleans up, and the head of the queue is where the dead ones lie.
STORAGE = """
ALTER TABLE leasequeue_task SET (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE leasequeue_turn SET (autovacuum_vacuum_scale_factor = 0.02);
"""
DEFAULT_STORAGE = """
ALTER TABLE leasequeue_task RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE leasequeue_turn RESET (autovacuum_vacuum_scale_factor);
"""


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0001_initial")]

    operations = [
        PostgresSQL(APPEND_ONLY, NOT_APPEND_ONLY),
        PostgresSQL(STORAGE, DEFAULT_STORAGE),
    ]
