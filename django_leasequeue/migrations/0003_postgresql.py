"""How PostgreSQL keeps the tables that change most: few index entries a claim, early vacuums."""

from __future__ import annotations

from importlib import import_module

from django.db import migrations

PostgresSQL = import_module("django_leasequeue.migrations.0002_append_only").PostgresSQL

# Every claim writes an entry into each index. No look-up begins with a life: it is found through
# the log, whose position is the task's number; so is a task whose id is its life's text, which
# nobody else can have. Tasks without a key need no place in the index of keys. And an index with
# a condition serves only those who state it: where statistics know of no row, as after a drain,
# any other would do as well in the planner's eyes.
LEAN = """
ALTER TABLE leasequeue_task DROP CONSTRAINT leasequeue_task_life_key;
ALTER TABLE leasequeue_task DROP CONSTRAINT leasequeue_task_id;
CREATE UNIQUE INDEX leasequeue_task_id ON leasequeue_task (task_id, tenant, queue)
    WHERE task_id <> life::text;
ALTER TABLE leasequeue_task DROP CONSTRAINT leasequeue_task_live_key;
CREATE UNIQUE INDEX leasequeue_task_live_key ON leasequeue_task (live_key, tenant, queue)
    WHERE live_key IS NOT NULL;
"""
AS_THE_MODEL_SAYS = """
DROP INDEX leasequeue_task_live_key;
DROP INDEX leasequeue_task_id;
ALTER TABLE leasequeue_task ADD CONSTRAINT leasequeue_task_id UNIQUE (task_id, tenant, queue);
ALTER TABLE leasequeue_task ADD CONSTRAINT leasequeue_task_live_key
    UNIQUE (live_key, tenant, queue);
ALTER TABLE leasequeue_task ADD CONSTRAINT leasequeue_task_life_key UNIQUE (life);
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
    dependencies = [("leasequeue", "0002_append_only")]

    operations = [
        PostgresSQL(LEAN, AS_THE_MODEL_SAYS),
        PostgresSQL(STORAGE, DEFAULT_STORAGE),
    ]
