"""When a task was enqueued, in its row; and fewer index entries a claim on PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.db import migrations
from django.db.models import OuterRef, Subquery

from django_leasequeue.fields import Instant

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


def read_off_the_log(apps: Any, schema_editor: Any) -> None:
    using = schema_editor.connection.alias
    log = apps.get_model("leasequeue", "TaskTransition").objects.using(using)
    began = log.filter(pk=OuterRef("seq")).values("at")
    tasks = apps.get_model("leasequeue", "Task").objects.using(using)
    tasks.update(enqueued_at=Subquery(began))


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0004_prune")]

    operations = [
        migrations.AddField("task", "enqueued_at", Instant("enqueued at", null=True)),
        migrations.RunPython(read_off_the_log, migrations.RunPython.noop),
        migrations.AlterField("task", "enqueued_at", Instant("enqueued at")),
        PostgresSQL(LEAN, AS_THE_MODEL_SAYS),
    ]
