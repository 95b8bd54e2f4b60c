"""Every table, as models.py has it.

Of the two that grow, what has a fixed width stands first: PostgreSQL fills up no gaps before it,
and finds it without reading what stands before.
"""

from __future__ import annotations

from django.db import migrations, models

from django_leasequeue.fields import ExactCharField, Instant

KINDS = [
    (kind, kind)
    for kind in (
        *("enqueued", "duplicate", "leased", "heartbeat", "acked", "retried", "released"),
        *("lapsed", "dead", "dropped", "redriven", "cancelled", "erased"),
    )
]
STATES = [(state, state) for state in ("ready", "leased", "dead")]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            "TaskTransition",
            fields=[
                ("id", models.BigAutoField("position", primary_key=True, serialize=False)),
                ("life", models.UUIDField("life")),
                ("at", Instant("at")),
                ("token", models.BigIntegerField("fencing token", null=True)),
                ("visible_at", Instant("visible at", null=True)),
                ("attempt", models.IntegerField("attempt")),
                ("kind", ExactCharField("kind", choices=KINDS, max_length=20)),
                ("queue", ExactCharField("queue", max_length=100)),
                ("tenant", ExactCharField("tenant", blank=True, max_length=100)),
                ("worker", ExactCharField("worker", max_length=200, null=True)),
                ("task_id", ExactCharField("id", max_length=200, null=True)),
                ("payload", models.TextField("payload", null=True)),
                ("data", models.TextField("data", null=True)),
            ],
            options={
                "verbose_name": "transition",
                "verbose_name_plural": "transitions",
                "db_table": "leasequeue_transition",
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["life", "id"], name="leasequeue_transition_life")],
            },
        ),
        migrations.CreateModel(
            "Task",
            fields=[
                ("seq", models.BigIntegerField("number", primary_key=True, serialize=False)),
                ("life", models.UUIDField("life", unique=True)),
                ("enqueued_at", Instant("enqueued at")),
                ("visible_at", Instant("visible at")),
                ("visibility", models.DurationField("visibility")),
                ("max_lease", models.DurationField("max lease")),
                ("max_attempts", models.IntegerField("max attempts")),
                ("attempt", models.IntegerField("attempt")),
                ("token", models.BigIntegerField("fencing token", null=True)),
                ("leased_at", Instant("leased at", null=True)),
                ("priority", models.SmallIntegerField("priority")),
                ("lane", ExactCharField(editable=False, max_length=5, null=True)),
                ("state", ExactCharField("state", choices=STATES, max_length=10)),
                ("worker", ExactCharField("worker", max_length=200, null=True)),
                ("details", models.TextField("details", null=True)),
                ("last_error", models.TextField("last error", blank=True)),
                ("fingerprint", ExactCharField(editable=False, max_length=200, null=True)),
                ("queue", ExactCharField("queue", max_length=100)),
                ("tenant", ExactCharField("tenant", blank=True, max_length=100)),
                ("task_id", ExactCharField("id", max_length=200)),
                ("path", models.TextField("task", blank=True)),
                ("payload", models.TextField("payload")),
                ("dedupe_key", ExactCharField("dedupe key", max_length=200, null=True)),
                ("live_key", ExactCharField(editable=False, max_length=200, null=True)),
            ],
            options={
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "db_table": "leasequeue_task",
                "permissions": [
                    ("redrive_task", "Can redrive dead letters"),
                    ("cancel_task", "Can cancel tasks"),
                    ("view_payload", "Can view payloads, details and results"),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        *("queue", "tenant", models.F("priority").desc(), "visible_at", "seq"),
                        condition=models.Q(lane="now"),
                        name="leasequeue_task_now",
                    ),
                    models.Index(
                        fields=["queue", "visible_at", "seq"],
                        condition=models.Q(lane="later"),
                        name="leasequeue_task_later",
                    ),
                    models.Index(
                        fields=["queue", "seq"],
                        condition=models.Q(state="dead"),
                        name="leasequeue_task_dead",
                    ),
                    models.Index(
                        fields=["visible_at", "seq"],
                        condition=models.Q(state="dead"),
                        name="leasequeue_task_died",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_id", "tenant", "queue"), name="leasequeue_task_id"
                    ),
                    models.UniqueConstraint(
                        fields=("live_key", "tenant", "queue"), name="leasequeue_task_live_key"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "DeadLetter",
            fields=[],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("leasequeue.task",),
        ),
        migrations.CreateModel(
            "Turn",
            fields=[
                ("pk", models.CompositePrimaryKey("queue", "stamp", "token", serialize=False)),
                ("queue", ExactCharField(max_length=100)),
                ("stamp", models.BigIntegerField()),
                ("token", models.BigIntegerField()),
                ("tenant", ExactCharField(blank=True, max_length=100)),
            ],
            options={"db_table": "leasequeue_turn", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "Effect",
            fields=[
                ("pk", models.CompositePrimaryKey("life", "name", serialize=False)),
                ("life", models.UUIDField()),
                ("name", ExactCharField(max_length=200)),
                ("token", models.BigIntegerField()),
                ("started_at", Instant()),
                ("done_at", Instant(null=True)),
                ("result", models.TextField(null=True)),
            ],
            options={"db_table": "leasequeue_effect", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "WorkerName",
            fields=[
                ("name", ExactCharField(max_length=200, primary_key=True, serialize=False)),
                ("holder", models.UUIDField()),
                ("expires_at", Instant()),
            ],
            options={"db_table": "leasequeue_worker_name", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "Tally",
            fields=[
                ("pk", models.CompositePrimaryKey("queue", "kind", serialize=False)),
                ("queue", ExactCharField(max_length=100)),
                ("kind", ExactCharField(max_length=20)),
                ("count", models.BigIntegerField()),
            ],
            options={"db_table": "leasequeue_tally", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "Pause",
            fields=[
                ("id", models.BigAutoField("number", primary_key=True, serialize=False)),
                ("queue", ExactCharField("queue", max_length=100)),
                ("paused_queue", ExactCharField(editable=False, max_length=100, null=True)),
                ("paused_at", Instant("paused at")),
                ("paused_by", ExactCharField("paused by", max_length=200, null=True)),
                ("reason", ExactCharField("reason", max_length=1000, null=True)),
                ("resumed_at", Instant("resumed at", null=True)),
                ("resumed_by", ExactCharField("resumed by", max_length=200, null=True)),
                (
                    "resume_reason",
                    ExactCharField("reason of the resumption", max_length=1000, null=True),
                ),
            ],
            options={
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "db_table": "leasequeue_pause",
                "permissions": [("pause_queue", "Can pause and resume queues")],
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=("paused_queue",), name="leasequeue_pause_queue")
                ],
            },
        ),
        migrations.CreateModel(
            "Overview",
            fields=[],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("leasequeue.pause",),
        ),
        migrations.CreateModel(
            "Worker",
            fields=[
                ("name", ExactCharField(max_length=200, primary_key=True, serialize=False)),
                ("host", ExactCharField(max_length=255)),
                ("pid", models.IntegerField()),
                ("threads", models.IntegerField()),
                ("queues", models.TextField()),
                ("started_at", Instant()),
                ("seen_at", Instant()),
                ("tasks", models.TextField()),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "leasequeue_worker",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            "Batch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("verb", ExactCharField("what", max_length=20)),
                ("by", ExactCharField("by", max_length=200)),
                ("reason", ExactCharField("reason", blank=True, max_length=1000)),
                ("queues", ExactCharField("queues", blank=True, max_length=3000)),
                ("chosen", ExactCharField("selection", blank=True, max_length=1000)),
                ("letters", models.BooleanField(default=False)),
                ("rate", models.FloatField("rate", null=True)),
                ("at", Instant("at")),
                ("next_at", Instant(null=True)),
                ("done_at", Instant("done at", null=True)),
                ("total", models.IntegerField("selected", default=0)),
                ("moved", models.IntegerField("moved", default=0)),
                ("skipped", models.IntegerField("skipped", default=0)),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "db_table": "leasequeue_batch",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["done_at", "id"], name="leasequeue_batch_unfinished")
                ],
            },
        ),
        migrations.CreateModel(
            "BatchItem",
            fields=[
                ("pk", models.CompositePrimaryKey("batch_id", "place", serialize=False)),
                ("batch_id", models.BigIntegerField()),
                ("place", models.IntegerField()),
                ("seq", models.BigIntegerField()),
                ("outcome", ExactCharField(max_length=500, null=True)),
            ],
            options={"db_table": "leasequeue_batch_item", "default_permissions": ()},
        ),
    ]
