-- complete: acknowledge the leases that are live; the others simply don't come back.
--
-- in    seqs           bigint[]      one lease each, any order
--       tokens         bigint[]
--       data           text[]        one JSON object each, with the result
--       now            timestamptz   NULL: the database's clock
-- out   token          bigint        one row per acknowledged lease
-- locks task rows in ascending seq, so that two bulk calls can't deadlock
-- plan  leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    -- The guard stands where the lock is taken: a row that changed while we waited for it is
    -- judged again, before anything is logged.
    -- One by one: a planner who doesn't know how many are leased would rather read them all.
    SELECT held.*, finish.data
      FROM (SELECT *
              FROM unnest(%(seqs)s::bigint[], %(tokens)s::bigint[], %(data)s::text[])
                       AS given (seq, token, data)
             ORDER BY seq) AS finish
     CROSS JOIN LATERAL (
           SELECT task.seq, task.life, task.queue, task.tenant, task.attempt, task.token,
                  task.worker
             FROM leasequeue_task AS task
            WHERE task.seq = finish.seq AND task.token = finish.token
              AND task.state = 'leased'
              AND task.visible_at > (SELECT now FROM clock)
              FOR UPDATE) AS held
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, data)
    SELECT life, 'acked', (SELECT now FROM clock), queue, tenant, attempt, token, worker, data
      FROM live
)
DELETE FROM leasequeue_task AS task
 USING live
 WHERE task.seq = live.seq
   -- Once more, as few: a planner who expects many would rather read the whole table.
   AND task.seq = ANY (ARRAY(SELECT seq FROM live))
RETURNING task.token;
