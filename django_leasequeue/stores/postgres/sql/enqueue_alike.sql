-- enqueue_alike: store tasks that differ in their payloads only, and have neither id nor key.
--
-- in    ids            uuid[]        the tasks' new lives, by whose text they go
--       payloads       text[]        one each
--       queue … data   scalars       what they have in common
--       now            timestamptz   NULL: the database's clock
-- out   state          text          of all: ready, or scheduled: they have to wait for their time
--       enqueued_at, visible_at
-- locks new rows, which nobody can wait for: no index compares them with others
-- plan  no scan of a table; without ON CONFLICT and a join of what was stored half the time
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
due AS MATERIALIZED (
    SELECT now, greatest(now, %(run_at)s::timestamptz,
                         now + %(delay_us)s::bigint * interval '1 microsecond') AS visible_at,
           %(visibility_us)s::bigint * interval '1 microsecond' AS visibility,
           %(max_lease_us)s::bigint * interval '1 microsecond' AS max_lease
      FROM clock
),
asked AS MATERIALIZED (
    SELECT nextval('leasequeue_transition_id_seq') AS seq, life, payload
      FROM unnest(%(ids)s::uuid[], %(payloads)s::text[]) AS task (life, payload)
),
stored AS (
    INSERT INTO leasequeue_task
           (seq, life, queue, tenant, task_id, path, payload, priority, max_attempts,
            visibility, max_lease, state, enqueued_at, visible_at, attempt, last_error, lane)
    SELECT seq, life, %(queue)s::text, %(tenant)s::text, life::text, %(path)s::text, payload,
           %(priority)s::smallint, %(max_attempts)s::integer,
           visibility, max_lease, 'ready', now, visible_at, 0, '',
           CASE WHEN visible_at > now THEN 'later' ELSE 'now' END
      FROM asked, due
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, visible_at, task_id, payload, data)
    SELECT seq, life, 'enqueued', now, %(queue)s::text, %(tenant)s::text, 0, visible_at,
           life::text, payload, %(data)s::text
      FROM asked, due
)
SELECT CASE WHEN visible_at > now THEN 'scheduled' ELSE 'ready' END AS state,
       now AT TIME ZONE 'UTC' AS enqueued_at, visible_at AT TIME ZONE 'UTC' AS visible_at
  FROM due;
