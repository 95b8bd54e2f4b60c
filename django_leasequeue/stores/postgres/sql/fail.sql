-- fail: record the failures of the leases that are live; the others simply don't come back.
--
-- in    seqs           bigint[]      one lease each, any order
--       tokens         bigint[]
--       kinds          text[]        retried, dead or dropped
--       delays_us      bigint[]      how long a retried task waits
--       summaries      text[]        the error in one line
--       fingerprints   text[]        what it has in common with others of its kind
--       data           text[]        one JSON object each, with the error
--       now            timestamptz   NULL: the database's clock
-- out   token …        one row per recorded failure: what happened
-- locks task rows in ascending seq, so that two bulk calls can't deadlock
-- plan  leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
live AS MATERIALIZED (
    -- The guard stands where the lock is taken: a row that changed while we waited for it is
    -- judged again, before anything is logged.
    -- One by one: a planner who doesn't know how many are leased would rather read them all.
    SELECT held.*, failure.kind, failure.summary, failure.fingerprint, failure.data,
           CASE failure.kind
                WHEN 'retried' THEN clock.now + failure.delay_us * interval '1 microsecond'
                WHEN 'dead' THEN clock.now
           END AS visible_at,
           clock.now
      FROM clock,
           (SELECT *
              FROM unnest(%(seqs)s::bigint[], %(tokens)s::bigint[], %(kinds)s::text[],
                          %(delays_us)s::bigint[], %(summaries)s::text[],
                          %(fingerprints)s::text[], %(data)s::text[])
                       AS given (seq, token, kind, delay_us, summary, fingerprint, data)
             ORDER BY seq) AS failure
     CROSS JOIN LATERAL (
           SELECT task.seq, task.life, task.queue, task.tenant, task.task_id, task.attempt,
                  task.token, task.worker
             FROM leasequeue_task AS task
            WHERE task.seq = failure.seq AND task.token = failure.token
              AND task.state = 'leased'
              AND task.visible_at > (SELECT now FROM clock)
              FOR UPDATE) AS held
),
kept AS (
    UPDATE leasequeue_task AS task
       SET state = CASE live.kind WHEN 'dead' THEN 'dead' ELSE 'ready' END,
           lane = CASE WHEN live.kind = 'dead' THEN NULL
                       WHEN live.visible_at > live.now THEN 'later'
                       ELSE 'now' END,
           live_key = CASE live.kind WHEN 'dead' THEN NULL ELSE task.dedupe_key END,
           visible_at = live.visible_at,
           last_error = live.summary,
           fingerprint = live.fingerprint
      FROM live
     WHERE task.seq = live.seq AND live.kind IN ('retried', 'dead')
           -- Once more, as few: a planner who expects many would rather read the whole table.
       AND task.seq = ANY (ARRAY(SELECT seq FROM live))
),
dropped AS (
    DELETE FROM leasequeue_task AS task
     USING live
     WHERE task.seq = live.seq AND live.kind = 'dropped'
       AND task.seq = ANY (ARRAY(SELECT seq FROM live))
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at, data)
    SELECT life, kind, now, queue, tenant, attempt, token, worker, visible_at, data
      FROM live
)
SELECT kind, queue, tenant, task_id AS id, life, attempt, token, worker, data,
       now AT TIME ZONE 'UTC' AS at
  FROM live;
