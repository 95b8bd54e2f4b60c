-- enqueue: store the tasks whose id and key are free; the others simply don't come back.
--
-- in    queue          text
--       life … data    arrays        one element a task, in the caller's order
--       now            timestamptz   NULL: the database's clock
-- out   life           uuid          one row per stored task
--       state          text          ready, or scheduled: it has to wait for its time
--       enqueued_at, visible_at
-- locks new rows in the order of (tenant, key, id); waits for an open transaction that holds an
--       id or a key, to learn whether it stays
-- plan  no scan of a table
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
asked AS MATERIALIZED (
    -- Numbers follow the caller's order, whatever the order of the inserts.
    SELECT nextval('leasequeue_transition_id_seq') AS seq,
           greatest(clock.now, run_at, clock.now + delay_us * interval '1 microsecond')
               AS visible_at,
           clock.now,
           task.*
      FROM clock,
           unnest(%(life)s::uuid[], %(id)s::text[], %(tenant)s::text[], %(path)s::text[],
                  %(priority)s::smallint[], %(payload)s::text[], %(key)s::text[],
                  %(run_at)s::timestamptz[], %(delay_us)s::bigint[],
                  %(max_attempts)s::integer[], %(visibility_us)s::bigint[],
                  %(max_lease_us)s::bigint[], %(data)s::text[])
               AS task (life, id, tenant, path, priority, payload, key, run_at, delay_us,
                        max_attempts, visibility_us, max_lease_us, data)
),
stored AS (
    INSERT INTO leasequeue_task
           (seq, life, queue, tenant, task_id, path, payload, priority, dedupe_key, live_key,
            max_attempts, visibility, max_lease, state, enqueued_at, visible_at, attempt,
            last_error, lane)
    SELECT seq, life, %(queue)s::text, tenant, id, path, payload, priority, key, key,
           max_attempts, visibility_us * interval '1 microsecond',
           max_lease_us * interval '1 microsecond', 'ready', now, visible_at, 0, '',
           CASE WHEN visible_at > now THEN 'later' ELSE 'now' END
      FROM asked
     ORDER BY tenant COLLATE "C", key COLLATE "C", id COLLATE "C"
        ON CONFLICT DO NOTHING
 RETURNING seq, lane
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, visible_at, task_id, payload, data)
    SELECT seq, life, 'enqueued', now, %(queue)s::text, tenant, 0, visible_at, id, payload, data
      FROM stored
      JOIN asked USING (seq)
)
SELECT asked.life, CASE stored.lane WHEN 'later' THEN 'scheduled' ELSE 'ready' END AS state,
       asked.now AT TIME ZONE 'UTC' AS enqueued_at,
       asked.visible_at AT TIME ZONE 'UTC' AS visible_at
  FROM stored
  JOIN asked USING (seq);
