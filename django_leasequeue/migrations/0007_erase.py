"""Erasing what one life knew: a kind of transition, and on PostgreSQL a function of the owner's.

The guard of the log opens to it as to the pruning of 0004. What it blanks is what `blanked` and
`erased` of transitions.py say, and it logs that it did.
"""

from __future__ import annotations

from importlib import import_module

from django.db import migrations

import django_leasequeue.fields

KINDS = (
    "enqueued", "duplicate", "leased", "heartbeat", "acked", "retried", "released", "lapsed",
    "dead", "dropped", "redriven", "cancelled", "erased",
)  # fmt: skip

append_only = import_module("django_leasequeue.migrations.0002_append_only")
prune = import_module("django_leasequeue.migrations.0004_prune")

ERASE = """
CREATE FUNCTION leasequeue_erase(
    of_queue text, target uuid, present timestamptz, note text, OUT done boolean
) LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    newest record;
BEGIN
    -- Not while pruning takes the life away: the row that is added here would be all that is left.
    PERFORM pg_advisory_xact_lock(
        hashtext('leasequeue_prune'), 'OURS.leasequeue_transition'::regclass::oid::integer);
    PERFORM FROM OURS.leasequeue_task WHERE life = target FOR NO KEY UPDATE;
    SELECT life, queue, tenant, attempt, token, worker
      INTO newest
      FROM OURS.leasequeue_transition
     WHERE life = target AND queue = of_queue
     ORDER BY life DESC, id DESC
     LIMIT 1;
    done := FOUND;
    IF NOT done THEN
        RETURN;
    END IF;

    PERFORM set_config('leasequeue.door', 'open', true);
    UPDATE OURS.leasequeue_transition
       SET payload = CASE WHEN payload IS NOT NULL THEN 'null' END,
           data = CASE WHEN kind IN ('heartbeat', 'acked') THEN NULL
                       WHEN data::json -> 'error' IS NOT NULL
                       THEN '{"error":{"type":"","message":"erased","traceback":"",'
                            '"summary":"erased"}}'
                       ELSE data END
     WHERE life = target;
    PERFORM set_config('leasequeue.door', '', true);

    UPDATE OURS.leasequeue_task
       SET payload = 'null', details = NULL,
           last_error = CASE WHEN last_error = '' THEN '' ELSE 'erased' END
     WHERE life = target;
    UPDATE OURS.leasequeue_effect SET result = 'null' WHERE life = target AND result IS NOT NULL;
    INSERT INTO OURS.leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, data)
    VALUES (newest.life, 'erased', present, newest.queue, newest.tenant, newest.attempt,
            newest.token, newest.worker, note);
END
$$;
"""
NO_ERASE = "DROP FUNCTION leasequeue_erase;"


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0006_mysql")]

    operations = [
        migrations.AlterField(
            model_name="tasktransition",
            name="kind",
            field=django_leasequeue.fields.ExactCharField(
                choices=[(kind, kind) for kind in KINDS], max_length=20, verbose_name="kind"
            ),
        ),
        append_only.PostgresSQL(prune.owners(ERASE, "leasequeue_erase"), NO_ERASE),
    ]
