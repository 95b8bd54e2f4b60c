"""Workers find the oldest unfinished batch by an index: they ask again and again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leasequeue", "0010_fingerprints"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["done_at", "id"], name="leasequeue_batch_unfinished"),
        ),
    ]
