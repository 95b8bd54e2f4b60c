-- adopt: take back every live lease of a worker.
--
-- in    queue, worker  text
--       data           text          a JSON object: who adopted
--       now            timestamptz   NULL: the database's clock
-- out   kind, seq …    one row per task: what happened, and the task as it is now
-- locks task rows in ascending seq
-- plan  reads all that is scheduled or leased, which a starting worker may
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    SELECT task.seq, task.attempt >= task.max_attempts AS over
      FROM leasequeue_task AS task
     WHERE task.queue = %(queue)s AND task.lane = 'later' AND task.state = 'leased'
       AND task.visible_at > (SELECT now FROM clock)
       AND task.worker = %(worker)s
     ORDER BY task.seq
       FOR NO KEY UPDATE
),
adopted AS (
    UPDATE leasequeue_task AS task
       SET state = CASE WHEN live.over THEN 'dead' ELSE 'ready' END,
           lane = CASE WHEN live.over THEN NULL ELSE 'now' END,
           live_key = CASE WHEN live.over THEN NULL ELSE task.dedupe_key END,
           visible_at = clock.now
      FROM live, clock
     WHERE task.seq = live.seq
 RETURNING task.*, CASE WHEN live.over THEN 'dead' ELSE 'lapsed' END AS kind
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at, data)
    SELECT life, kind, visible_at, queue, tenant, attempt, token, worker, visible_at,
           %(data)s::text
      FROM adopted
)
SELECT kind, visible_at AT TIME ZONE 'UTC' AS at,
       seq, life, queue, tenant, task_id AS id, path, payload, priority, dedupe_key,
       max_attempts, visibility, max_lease, state, enqueued_at AT TIME ZONE 'UTC' AS enqueued_at,
       visible_at AT TIME ZONE 'UTC' AS visible_at,
       attempt, token, worker, leased_at AT TIME ZONE 'UTC' AS leased_at, details, last_error
  FROM adopted
 ORDER BY seq;
