-- duplicate: answer the enqueues that found their id or their key taken.
--
-- The holder is the task with the id, else the one with the live key. What the clock did to it is
-- written down first: where it is dead by that, its key is free. A task that finds no holder any
-- more doesn't come back: enqueue it again.
--
-- in    queue          text
--       numbers        integer[]     one element each for every enqueue
--       tenants, ids, keys   text[]
--       lives          uuid[]        the life whose text the id is, or NULL
--       now            timestamptz   NULL: the database's clock
-- out   number …       one row per duplicate, with its holder; number NULL: a holder
--                              to which the clock had done something
-- locks holders in ascending seq, and waits for those who change them: nobody starts a waiting task
--       before the caller's transaction, whose changes it may be about, has ended. A running task
--       isn't locked: it has begun without them, and may need its heartbeats
-- plan  leasequeue_task_id, leasequeue_transition_life and leasequeue_task_live_key, then
--       leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
asked AS MATERIALIZED (
    SELECT task.*
      FROM unnest(%(numbers)s::integer[], %(tenants)s::text[], %(ids)s::text[], %(keys)s::text[],
                  %(lives)s::uuid[])
               AS task (number, tenant, id, key, life)
),
found AS MATERIALIZED (
    SELECT asked.number, asked.id, asked.key, holder.seq
      FROM asked
     CROSS JOIN LATERAL (
           (SELECT task.seq
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.tenant = asked.tenant
               AND task.task_id = asked.id AND task.task_id <> task.life::text)
           UNION ALL
           (SELECT task.seq
              FROM leasequeue_task AS task
             WHERE task.seq = (SELECT first.id
                                 FROM leasequeue_transition AS first
                                WHERE first.life = asked.life
                                ORDER BY first.life, first.id
                                LIMIT 1)
               AND task.queue = %(queue)s AND task.tenant = asked.tenant
               AND task.task_id = asked.id)
           UNION ALL
           (SELECT task.seq
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.tenant = asked.tenant
               AND task.live_key = asked.key)
           LIMIT 1) AS holder
),
running AS MATERIALIZED (
    SELECT task.*, false AS late
      FROM leasequeue_task AS task
     WHERE task.seq IN (SELECT seq FROM found)
       AND task.state = 'leased' AND task.visible_at > (SELECT now FROM clock)
),
locked AS MATERIALIZED (
    SELECT task.*,
           task.state = 'leased' AND task.visible_at <= (SELECT now FROM clock) AS late
      FROM leasequeue_task AS task
     WHERE task.seq IN (SELECT seq FROM found EXCEPT SELECT seq FROM running)
     ORDER BY task.seq
       FOR NO KEY UPDATE
),
held AS MATERIALIZED (
    SELECT *, attempt >= max_attempts AS last
      FROM (SELECT * FROM running UNION ALL SELECT * FROM locked) AS task
),
answered AS (
    -- What was found without a lock may have let go of the key meanwhile.
    SELECT found.number, held.*
      FROM found
      JOIN held USING (seq)
     WHERE held.task_id = found.id
        OR (held.live_key = found.key AND NOT (held.late AND held.last))
),
settled AS (
    UPDATE leasequeue_task AS task
       SET state = CASE WHEN held.last THEN 'dead' ELSE 'ready' END,
           lane = CASE WHEN held.last THEN NULL ELSE 'now' END,
           live_key = CASE WHEN held.last THEN NULL ELSE task.live_key END
      FROM held
     WHERE task.seq = held.seq AND held.late
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at)
    SELECT life, kind, at, %(queue)s::text, tenant, attempt, token, worker, visible_at
      FROM (SELECT 1 AS step, seq, life, CASE WHEN last THEN 'dead' ELSE 'lapsed' END AS kind,
                   visible_at AS at, tenant, attempt, token, worker, visible_at
              FROM held
             WHERE late
             UNION ALL
            SELECT 2, number, life, 'duplicate', (SELECT now FROM clock), tenant, attempt, token,
                   worker, NULL
              FROM answered) AS happened
     ORDER BY step, seq
)
SELECT number, NULL AS kind, life, tenant, task_id AS id, attempt, token, worker,
       visible_at AT TIME ZONE 'UTC' AS at,
       CASE WHEN late AND last THEN 'dead'
            WHEN late THEN 'ready'
            WHEN state = 'ready' AND visible_at > (SELECT now FROM clock) THEN 'scheduled'
            ELSE state END AS state,
       enqueued_at AT TIME ZONE 'UTC' AS enqueued_at, visible_at AT TIME ZONE 'UTC' AS visible_at
  FROM answered
 UNION ALL
SELECT NULL, CASE WHEN last THEN 'dead' ELSE 'lapsed' END, life, tenant, task_id, attempt, token,
       worker, visible_at AT TIME ZONE 'UTC', NULL, NULL, NULL
  FROM held
 WHERE late;
