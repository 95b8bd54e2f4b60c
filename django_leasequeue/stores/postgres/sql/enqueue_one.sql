-- enqueue_one: store one task whose id and key are free; else it simply doesn't come back.
--
-- in    queue          text
--       life … data    the task
--       now            timestamptz   NULL: the database's clock
-- out   as enqueue
-- locks a new row; waits for an open transaction that holds the id or the key, to learn whether it
--       stays
-- plan  no scan of a table; a site's requests wait for this plan each time, which without the
--       arrays of enqueue takes the server half as long
WITH asked AS MATERIALIZED (
    SELECT nextval('leasequeue_transition_id_seq') AS seq,
           greatest(now, %(run_at)s::timestamptz,
                    now + %(delay_us)s::bigint * interval '1 microsecond') AS visible_at,
           now
      FROM (SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now) AS clock
),
stored AS (
    INSERT INTO leasequeue_task
           (seq, life, queue, tenant, task_id, path, payload, priority, dedupe_key, live_key,
            max_attempts, visibility, max_lease, state, enqueued_at, visible_at, attempt,
            last_error, lane)
    SELECT seq, %(life)s::uuid, %(queue)s::text, %(tenant)s::text, %(id)s::text, %(path)s::text,
           %(payload)s::text, %(priority)s::smallint, %(key)s::text, %(key)s::text,
           %(max_attempts)s::integer, %(visibility_us)s::bigint * interval '1 microsecond',
           %(max_lease_us)s::bigint * interval '1 microsecond', 'ready', now, visible_at, 0, '',
           CASE WHEN visible_at > now THEN 'later' ELSE 'now' END
      FROM asked
        ON CONFLICT DO NOTHING
 RETURNING *
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, visible_at, task_id, payload, data)
    SELECT seq, life, 'enqueued', enqueued_at, queue, tenant, 0, visible_at, task_id, payload,
           %(data)s::text
      FROM stored
)
SELECT life, CASE lane WHEN 'later' THEN 'scheduled' ELSE 'ready' END AS state,
       enqueued_at AT TIME ZONE 'UTC' AS enqueued_at,
       visible_at AT TIME ZONE 'UTC' AS visible_at
  FROM stored;
