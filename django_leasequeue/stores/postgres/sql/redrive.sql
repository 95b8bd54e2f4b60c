-- redrive: make dead letters ready again, attempts from 1.
--
-- A task that is dead by the clock alone, asked for or in the way of one that is, is only written
-- down as dead: ask again then. Of letters that share a key the first one gets it.
--
-- in    queue, tenant  text
--       ids            text[]
--       lives          uuid[]        the life whose text each id is, or NULL
--       data           text          a JSON object: who, and why
--       first_at       timestamptz   when the first becomes visible; NULL: all do now
--       gap_us         bigint        microseconds from one to the next
--       now            timestamptz   NULL: the database's clock
-- out   id, state      what was asked for and is held, its state as the clock has it
--       again          boolean       something was written down first: ask again
--       key, held_by   text          the key that a live task has, and that task's id
--       kind …         what happened; rows with state NULL weren't asked for
-- locks task rows in ascending seq, stepping over locked ones; waits for an open transaction that
--       holds a letter's key, and fails where it is kept
-- plan  leasequeue_task_id, leasequeue_transition_life and leasequeue_task_live_key, then
--       leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
named AS MATERIALIZED (
    SELECT task.seq
      FROM leasequeue_task AS task
     WHERE task.queue = %(queue)s AND task.tenant = %(tenant)s
       AND task.task_id = ANY (%(ids)s::text[]) AND task.task_id <> task.life::text
     UNION ALL
    SELECT (SELECT first.id
              FROM leasequeue_transition AS first
             WHERE first.life = asked.life
             ORDER BY first.life, first.id
             LIMIT 1)
      FROM unnest(%(lives)s::uuid[]) AS asked (life)
     WHERE asked.life IS NOT NULL
),
found AS MATERIALIZED (
    SELECT task.seq, task.task_id AS id, task.dedupe_key AS key, task.tenant,
           CASE WHEN task.state = 'leased' AND task.visible_at <= clock.now
                THEN CASE WHEN task.attempt >= task.max_attempts THEN 'dead' ELSE 'ready' END
                WHEN task.state = 'ready' AND task.visible_at > clock.now THEN 'scheduled'
                ELSE task.state END AS state
      FROM clock, leasequeue_task AS task
     WHERE task.seq = ANY (ARRAY(SELECT seq FROM named))
       AND task.queue = %(queue)s AND task.tenant = %(tenant)s
       AND task.task_id = ANY (%(ids)s::text[])
),
letter AS MATERIALIZED (
    SELECT task.seq
      FROM leasequeue_task AS task
     WHERE task.seq = ANY (ARRAY(SELECT seq FROM found WHERE state = 'dead'))
       AND task.state || '' = 'dead'  -- by number: a planner may think that none is dead yet
     ORDER BY task.seq
       FOR NO KEY UPDATE SKIP LOCKED
),
blocked AS MATERIALIZED (
    -- Who has the letter's key: a held task, else the first letter that asks for it.
    SELECT found.seq, coalesce(holder.seq, ahead.seq) AS by_seq,
           coalesce(holder.task_id, ahead.id) AS by_id
      FROM found
      JOIN letter USING (seq)
      LEFT JOIN leasequeue_task AS holder
        ON holder.queue = %(queue)s AND holder.tenant = %(tenant)s AND holder.live_key = found.key
      LEFT JOIN LATERAL (
           SELECT first.seq, first.id
             FROM found AS first
             JOIN letter USING (seq)
            WHERE first.key = found.key AND first.seq < found.seq
            ORDER BY first.seq
            LIMIT 1) AS ahead ON true
     WHERE holder.seq IS NOT NULL OR ahead.seq IS NOT NULL
),
overdue AS MATERIALIZED (
    SELECT task.seq
      FROM leasequeue_task AS task
     WHERE task.seq IN (SELECT seq FROM found UNION SELECT by_seq FROM blocked)
       AND task.state = 'leased' AND task.visible_at <= (SELECT now FROM clock)
       AND task.attempt >= task.max_attempts
     ORDER BY task.seq
       FOR NO KEY UPDATE SKIP LOCKED
),
died AS (
    UPDATE leasequeue_task AS task
       SET state = 'dead', lane = NULL, live_key = NULL
      FROM overdue
     WHERE task.seq = overdue.seq
 RETURNING task.*, 'dead' AS kind, task.visible_at AS at, NULL AS data
),
placed AS MATERIALIZED (
    SELECT letter.seq, clock.now,
           greatest(clock.now, %(first_at)s::timestamptz)
               + (row_number() OVER (ORDER BY letter.seq) - 1)
               * %(gap_us)s::bigint * interval '1 microsecond' AS visible_at
      FROM letter, clock
     WHERE letter.seq NOT IN (SELECT seq FROM blocked)
),
redriven AS (
    UPDATE leasequeue_task AS task
       SET state = 'ready', live_key = task.dedupe_key, attempt = 0,
           visible_at = placed.visible_at,
           lane = CASE WHEN placed.visible_at > placed.now THEN 'later' ELSE 'now' END
      FROM placed
     WHERE task.seq = placed.seq
 RETURNING task.*, 'redriven' AS kind, placed.now AS at, %(data)s::text AS data
),
moved AS (
    SELECT * FROM died UNION ALL SELECT * FROM redriven
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, visible_at, data)
    SELECT life, kind, at, queue, tenant, attempt, token, worker, visible_at, data
      FROM moved
)
SELECT coalesce(found.id, moved.task_id) AS id, found.state, found.key, blocked.by_id AS held_by,
       coalesce(found.seq, blocked.by_seq) IN (SELECT seq FROM overdue)
           OR coalesce(blocked.by_seq IN (SELECT seq FROM overdue), false) AS again,
       moved.kind, moved.life, moved.tenant, moved.attempt, moved.token, moved.worker,
       moved.at AT TIME ZONE 'UTC' AS at
  FROM found
  LEFT JOIN blocked USING (seq)
  FULL JOIN moved USING (seq);
