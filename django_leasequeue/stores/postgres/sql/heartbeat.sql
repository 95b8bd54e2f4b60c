-- heartbeat: move the deadline of a live lease, unless its row is locked.
--
-- in    seq            bigint
--       token          bigint
--       details        text          JSON; NULL: what is stored stays
--       data           text          the same as a JSON object, for the log; NULL likewise
--       now            timestamptz   NULL: the database's clock
-- out   live           boolean       whether the lease is live, read without a lock
--       deadline …     NULL where the row is locked, or the lease not live
-- locks the task row; never waits for it
-- plan  leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    SELECT task.seq
      FROM leasequeue_task AS task
     WHERE task.seq = %(seq)s AND task.token = %(token)s AND task.state = 'leased'
       AND task.visible_at > (SELECT now FROM clock)
),
free AS MATERIALIZED (
    SELECT task.seq
      FROM leasequeue_task AS task
     WHERE task.seq = %(seq)s AND task.token = %(token)s AND task.state = 'leased'
       AND task.visible_at > (SELECT now FROM clock)
       FOR NO KEY UPDATE SKIP LOCKED
),
renewed AS (
    UPDATE leasequeue_task AS task
       -- At UTC a day has 24 hours, whatever the session's zone.
       SET visible_at = least(clock.now AT TIME ZONE 'UTC' + task.visibility,
                              task.leased_at AT TIME ZONE 'UTC' + task.max_lease)
                        AT TIME ZONE 'UTC',
           details = coalesce(%(details)s::text, task.details)
      FROM free, clock
     WHERE task.seq = free.seq
 RETURNING task.*, clock.now
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at, data)
    SELECT life, 'heartbeat', now, queue, tenant, attempt, token, worker, visible_at,
           %(data)s::text
      FROM renewed
)
SELECT EXISTS (SELECT FROM live) AS live,
       renewed.visible_at AT TIME ZONE 'UTC' AS deadline,
       renewed.visible_at - renewed.now AS remaining,
       renewed.details
  FROM (SELECT 1) AS one
  LEFT JOIN renewed ON true;
