"""The log's guard, and the two ways past it: pruning and erasing, functions of the owner's.

On PostgreSQL; it has words for it that Django hasn't. Elsewhere the managers of models.py refuse.
"""

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
#
# Whoever sets the flag by hand must be the owner as well: current_user is that inside the owner's
# SECURITY DEFINER functions, and for a role that was merely granted DELETE it isn't.
APPEND_ONLY = """
CREATE FUNCTION leasequeue_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('leasequeue.door', true) = 'open'
       AND current_user = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID)
    THEN
        IF TG_OP = 'DELETE' THEN
            RETURN OLD;
        END IF;
        RETURN NEW;
    END IF;
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

# What it removes is what no fold needs, whatever it is asked: all of a life that has left,
# `duplicate` rows, and heartbeats that a later one of their lease makes up for.
#
# Looks at the rows from behind a position on, *size* of them at most, as far as they are old
# enough. "upto" is where to go on, NULL where somebody else is pruning; "more" says that there
# may be more to do at once.
#
# The flag is set inside, not by a SET clause: that would need a superuser to create the function.
# Without statistics a planner might read all of the log for a few lives: it is told not to.
PRUNE = """
CREATE FUNCTION leasequeue_prune(
    kinds text[], queues text[], before timestamptz, present timestamptz, behind bigint,
    size integer, OUT upto bigint, OUT pruned bigint, OUT more boolean
) LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
    rows_max constant integer := least(greatest(coalesce(size, 1000), 1), 10000);
    ended uuid[];
    beating uuid[];
    doomed bigint[];
BEGIN
    pruned := 0;
    more := false;
    IF NOT pg_try_advisory_xact_lock(
        hashtext('leasequeue_prune'), 'OURS.leasequeue_transition'::regclass::oid::integer)
    THEN
        RETURN;
    END IF;

    -- As far as the first row that is too young; one from a clock set back since is passed by.
    SELECT coalesce(min(id) FILTER (WHERE at >= before AND at <= present) - 1, max(id), behind),
           count(*) = rows_max AND bool_and(at < before OR at > present)
      INTO upto, more
      FROM (SELECT id, at FROM OURS.leasequeue_transition
             WHERE id > behind ORDER BY id LIMIT rows_max) AS looked_at;

    ended := ARRAY(
        SELECT DISTINCT life FROM OURS.leasequeue_transition
         WHERE id > behind AND id <= upto AND at < before AND kind = ANY (kinds)
           AND kind IN ('acked', 'dropped', 'cancelled')
           AND (queues IS NULL OR queue = ANY (queues)));

    -- Of those that ran long or were repeated often, first a batch of what has no bound.
    doomed := ARRAY(
        SELECT id FROM OURS.leasequeue_transition
         WHERE life = ANY (ended) AND kind IN ('duplicate', 'heartbeat')
         ORDER BY life, id LIMIT rows_max);
    IF cardinality(doomed) = rows_max THEN
        upto := behind;
        more := true;
    ELSE
        beating := ARRAY(
            SELECT DISTINCT life FROM OURS.leasequeue_transition
             WHERE id > behind AND id <= upto AND at < before AND kind = ANY (kinds)
               AND kind = 'heartbeat' AND (queues IS NULL OR queue = ANY (queues)));
        doomed := ARRAY(
            SELECT id FROM OURS.leasequeue_transition WHERE life = ANY (ended)
             UNION
            SELECT id FROM OURS.leasequeue_transition
             WHERE id > behind AND id <= upto AND at < before AND kind = ANY (kinds)
               AND kind = 'duplicate' AND (queues IS NULL OR queue = ANY (queues))
             UNION
            -- The last one of a lease stays, and the last one that left details.
            SELECT beat.id FROM OURS.leasequeue_transition AS beat
             WHERE beat.life = ANY (beating) AND beat.id <= upto AND beat.at < before
               AND beat.kind = 'heartbeat'
               AND EXISTS (
                   SELECT FROM OURS.leasequeue_transition AS later
                    WHERE later.life = beat.life AND later.id > beat.id AND later.id <= upto
                      AND later.kind = 'heartbeat' AND later.token = beat.token
                      AND (beat.data IS NULL OR later.data IS NOT NULL)));
        DELETE FROM OURS.leasequeue_effect WHERE life = ANY (ended);
    END IF;

    PERFORM set_config('leasequeue.door', 'open', true);
    WITH gone AS (
        DELETE FROM OURS.leasequeue_transition WHERE id = ANY (doomed) RETURNING queue, kind
    ),
    counted AS (
        INSERT INTO OURS.leasequeue_tally AS tally (queue, kind, count)
        SELECT queue, kind, count(*) FROM gone GROUP BY queue, kind ORDER BY queue, kind
            ON CONFLICT (queue, kind) DO UPDATE SET count = tally.count + excluded.count
    )
    SELECT count(*) INTO pruned FROM gone;
    PERFORM set_config('leasequeue.door', '', true);
END
$$;
"""

# What it blanks is what `blanked` and `erased` of transitions.py say, and it logs that it did.
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
           fingerprint = CASE WHEN fingerprint IS NOT NULL THEN 'erased' END,
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


def owners(create: str, name: str) -> str:
    """SQL that creates the function *name* in its owner's name, for nobody to bend.

    The schema of our tables, OURS, is written out and not searched: where others may create in it,
    as anybody can in ``public`` before PostgreSQL 15, an operator of theirs that fits better than
    the server's own would be run in the owner's name.
    """
    return f"""
DO $do$
BEGIN
    EXECUTE replace($create${create}$create$, 'OURS', (
        SELECT quote_ident(nspname)
          FROM pg_class
          JOIN pg_namespace ON pg_namespace.oid = relnamespace
         WHERE pg_class.oid = 'leasequeue_transition'::regclass));
END
$do$;
ALTER FUNCTION {name} SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC;
"""  # noqa: S608  both are ours, and written out above


class Migration(migrations.Migration):
    dependencies = [("leasequeue", "0001_initial")]

    operations = [
        PostgresSQL(APPEND_ONLY, NOT_APPEND_ONLY),
        PostgresSQL(owners(PRUNE, "leasequeue_prune"), "DROP FUNCTION leasequeue_prune;"),
        PostgresSQL(owners(ERASE, "leasequeue_erase"), "DROP FUNCTION leasequeue_erase;"),
    ]
