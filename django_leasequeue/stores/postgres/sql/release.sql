-- release: give back the leases that are live, as if they had never been claimed.
--
-- in    seqs           bigint[]      one lease each, any order
--       tokens         bigint[]
--       since          timestamptz[] when the task was visible before the claim
--       now            timestamptz   NULL: the database's clock
-- out   token          bigint        one row per lease given back
-- locks task rows in ascending seq, so that two bulk calls can't deadlock
-- plan  leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    -- One by one: a planner who doesn't know how many are leased would rather read them all.
    SELECT held.seq, lease.since
      FROM (SELECT *
              FROM unnest(%(seqs)s::bigint[], %(tokens)s::bigint[], %(since)s::timestamptz[])
                       AS given (seq, token, since)
             ORDER BY seq) AS lease
     CROSS JOIN LATERAL (
           SELECT task.seq
             FROM leasequeue_task AS task
            WHERE task.seq = lease.seq AND task.token = lease.token
              AND task.state = 'leased'
              AND task.visible_at > (SELECT now FROM clock)
              FOR NO KEY UPDATE) AS held
),
released AS (
    UPDATE leasequeue_task AS task
       SET state = 'ready', lane = 'now', attempt = task.attempt - 1, visible_at = live.since
      FROM live
     WHERE task.seq = live.seq
           -- Once more, as few: a planner who expects many would rather read the whole table.
       AND task.seq = ANY (ARRAY(SELECT seq FROM live))
 RETURNING task.*
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at)
    SELECT life, 'released', (SELECT now FROM clock), queue, tenant, attempt, token, worker,
           visible_at
      FROM released
)
SELECT token FROM released;
