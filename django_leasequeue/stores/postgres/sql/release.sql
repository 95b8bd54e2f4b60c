-- release: give back the leases that are live, as if they had never been claimed.
--
-- in    lives          uuid[]        one lease each, any order
--       tokens         bigint[]
--       now            timestamptz   NULL: the database's clock
-- out   token          bigint        one row per lease given back
-- locks task rows in ascending seq, so that two bulk calls can't deadlock
-- plan  the unique index on life, leasequeue_transition_life, then leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    SELECT task.seq, task.life, task.token
      FROM unnest(%(lives)s::uuid[], %(tokens)s::bigint[]) AS lease (life, token)
      JOIN leasequeue_task AS task USING (life, token)
     WHERE task.state = 'leased'
       AND task.visible_at > (SELECT now FROM clock)
     ORDER BY task.seq
       FOR NO KEY UPDATE OF task
),
former AS MATERIALIZED (
    -- When it was visible before this claim; the deadlines of earlier leases are not that.
    SELECT live.seq, before.visible_at
      FROM live
     CROSS JOIN LATERAL (
           SELECT transition.visible_at
             FROM leasequeue_transition AS transition
            WHERE transition.life = live.life AND transition.id < live.token
              AND transition.visible_at IS NOT NULL
              AND transition.kind NOT IN ('leased', 'heartbeat')
            ORDER BY transition.life DESC, transition.id DESC
            LIMIT 1) AS before
),
released AS (
    UPDATE leasequeue_task AS task
       SET state = 'ready', lane = 'now', attempt = task.attempt - 1,
           visible_at = former.visible_at
      FROM former
     WHERE task.seq = former.seq
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
