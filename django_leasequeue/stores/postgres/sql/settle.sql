-- settle: write down what the clock has done, oldest due first.
--
-- What was delayed is moved among the visible, without a log row: nothing happened to it. A lease
-- past its deadline becomes ready, or dead, as of the deadline.
--
-- in    queue          text
--       limit          integer
--       due_from       timestamptz   what came due before that isn't looked for; NULL: all is
--       now            timestamptz   NULL: the database's clock
-- out   kind …         one row per task that was touched; kind NULL: it was only delayed
-- locks task rows, stepping over locked ones
-- plan  leasequeue_task_later
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
late AS MATERIALIZED (
    SELECT due.*
      FROM (SELECT task.seq, task.state = 'leased' AS leased,
                   task.state = 'leased' AND task.attempt >= task.max_attempts AS over
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.lane = 'later'
               AND task.visible_at <= (SELECT now FROM clock)
               AND task.visible_at >= coalesce(%(due_from)s::timestamptz, '-infinity')
             ORDER BY task.queue, task.visible_at, task.seq
             LIMIT 1000
               FOR NO KEY UPDATE SKIP LOCKED) AS due
     LIMIT %(limit)s
),
settled AS (
    UPDATE leasequeue_task AS task
       SET state = CASE WHEN late.over THEN 'dead' ELSE 'ready' END,
           lane = CASE WHEN late.over THEN NULL ELSE 'now' END,
           live_key = CASE WHEN late.over THEN NULL ELSE task.dedupe_key END
      FROM late
     WHERE task.seq = late.seq
           -- Once more, as few: a planner who expects many would rather read the whole table.
       AND task.seq = ANY (ARRAY(SELECT seq FROM late))
 RETURNING task.*, CASE WHEN late.over THEN 'dead' WHEN late.leased THEN 'lapsed' END AS kind
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at)
    SELECT life, kind, visible_at, queue, tenant, attempt, token, worker, visible_at
      FROM settled
     WHERE kind IS NOT NULL
)
SELECT kind, life, tenant, task_id AS id, attempt, token, worker,
       visible_at AT TIME ZONE 'UTC' AS at
  FROM settled;
