"""Batches of what operators do to many tasks, and what the errors of tasks have in common.

An erasure (0007) takes the latter away with the error.
"""

from __future__ import annotations

from importlib import import_module

import django_leasequeue.fields
from django.db import migrations, models

append_only = import_module("django_leasequeue.migrations.0002_append_only")
prune = import_module("django_leasequeue.migrations.0004_prune")
erase = import_module("django_leasequeue.migrations.0007_erase")

ERASE = erase.ERASE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
ERASE_FINGERPRINT = ERASE.replace(
    "last_error =",
    "fingerprint = CASE WHEN fingerprint IS NOT NULL THEN 'erased' END, last_error =",
    1,
)


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0008_pauses_and_workers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "verb",
                    django_leasequeue.fields.ExactCharField(max_length=20, verbose_name="what"),
                ),
                ("by", django_leasequeue.fields.ExactCharField(max_length=200, verbose_name="by")),
                (
                    "reason",
                    django_leasequeue.fields.ExactCharField(
                        blank=True, max_length=1000, verbose_name="reason"
                    ),
                ),
                (
                    "queues",
                    django_leasequeue.fields.ExactCharField(
                        blank=True, max_length=3000, verbose_name="queues"
                    ),
                ),
                (
                    "chosen",
                    django_leasequeue.fields.ExactCharField(
                        blank=True, max_length=1000, verbose_name="selection"
                    ),
                ),
                ("letters", models.BooleanField(default=False)),
                ("rate", models.FloatField(null=True, verbose_name="rate")),
                ("at", django_leasequeue.fields.Instant(verbose_name="at")),
                ("next_at", django_leasequeue.fields.Instant(null=True)),
                ("done_at", django_leasequeue.fields.Instant(null=True, verbose_name="done at")),
                ("total", models.IntegerField(default=0, verbose_name="selected")),
                ("moved", models.IntegerField(default=0, verbose_name="moved")),
                ("skipped", models.IntegerField(default=0, verbose_name="skipped")),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "db_table": "leasequeue_batch",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="BatchItem",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "batch_id",
                        "place",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("batch_id", models.BigIntegerField()),
                ("place", models.IntegerField()),
                ("seq", models.BigIntegerField()),
                ("outcome", django_leasequeue.fields.ExactCharField(max_length=500, null=True)),
            ],
            options={
                "verbose_name": "task of a batch",
                "verbose_name_plural": "tasks of a batch",
                "db_table": "leasequeue_batch_item",
                "default_permissions": (),
            },
        ),
        migrations.AddField(
            model_name="task",
            name="fingerprint",
            field=django_leasequeue.fields.ExactCharField(
                editable=False, max_length=200, null=True
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("state", "dead")),
                fields=["visible_at", "seq"],
                name="leasequeue_task_died",
            ),
        ),
        append_only.PostgresSQL(
            prune.owners(ERASE_FINGERPRINT, "leasequeue_erase"),
            prune.owners(ERASE, "leasequeue_erase"),
        ),
    ]
