"""What the errors of the tasks that have failed already have in common.

In a migration of its own, and a transaction for each thousand: nobody waits meanwhile.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, transaction
from django_leasequeue.failure import fingerprint


def fill(apps: Any, schema_editor: Any) -> None:
    using = schema_editor.connection.alias
    tasks = apps.get_model("leasequeue", "Task").objects.using(using)
    failed = tasks.exclude(last_error="").filter(fingerprint=None).order_by("seq")
    after = 0
    while True:
        with transaction.atomic(using=using):
            few = failed.filter(seq__gt=after).select_for_update()
            rows = list(few.only("seq", "last_error")[:1000])
            for row in rows:
                row.fingerprint = fingerprint(row.last_error)
            tasks.bulk_update(rows, ["fingerprint"])
        if not rows:
            return
        after = rows[-1].seq


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("leasequeue", "0009_batches"),
    ]

    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop, atomic=False),
    ]
