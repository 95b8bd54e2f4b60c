-- claim: lease tasks of the only tenant that has visible ones; where that isn't so, say so.
--
-- in    queue, tenant, worker   text
--       limit          integer       at most 1000
--       gate           boolean       whether to look for what came due
--       tenants        text[]        whose visible tasks begin where: with
--       priorities     smallint[]    the tasks of that priority at
--       visible_from   timestamptz[] that instant and
--       seq_from       bigint[]      that number, and those of priorities between at
--       since          timestamptz   that instant; of lower ones all are looked for
--       others_from    timestamptz   before it, no other tenant's are looked for; NULL: all are
--       due_from       timestamptz   what came due before that isn't looked for; NULL: all is
--       now            timestamptz   NULL: the database's clock
-- out   due            boolean       something came due: settle first; nothing was leased
--       alone          boolean       false: a second tenant has visible tasks; nothing was leased
--       token …        one row per lease; a single row with NULL where there is none
-- locks task rows, stepping over locked ones; against a pause, until the commit
-- plan  leasequeue_task_now for picks and tenants, leasequeue_task_later for the probe
WITH clock AS MATERIALIZED (
    -- Read behind the snapshot: a statement that waits, as for a migration's lock, would lease what
    -- was enqueued meanwhile as of a time before that, and for less than its visibility.
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
),
bounds AS MATERIALIZED (
    -- Read from here, not from the parameters: were the planner to see them, it would make
    -- a plan for each claim.
    SELECT coalesce(%(since)s::timestamptz, '-infinity') AS since,
           coalesce(%(others_from)s::timestamptz, '-infinity') AS others_from,
           coalesce(%(due_from)s::timestamptz, '-infinity') AS due_from
),
due AS MATERIALIZED (
    -- The earliest, not EXISTS: no statistics can talk the planner out of the index then.
    SELECT %(gate)s::boolean AND coalesce((
               SELECT task.visible_at
                 FROM leasequeue_task AS task
                WHERE task.queue = %(queue)s AND task.lane = 'later'
                  AND task.visible_at >= (SELECT due_from FROM bounds)
                ORDER BY task.queue, task.visible_at, task.seq
                LIMIT 1) <= (SELECT now FROM clock), false) AS yes
),
paused AS MATERIALIZED (
    -- Not for the rows, of which there is none but while paused: looked at so, the table stays
    -- locked until the commit, and a pause waits for that.
    SELECT FROM leasequeue_pause WHERE paused_queue = %(queue)s FOR KEY SHARE
),
others AS MATERIALIZED (
    SELECT (SELECT task.seq
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.lane = 'now' AND task.tenant > %(tenant)s
               AND task.visible_at >= (SELECT others_from FROM bounds)
             ORDER BY task.queue, task.tenant, task.priority DESC, task.visible_at, task.seq
             LIMIT 1) IS NOT NULL
        OR (SELECT task.seq
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.lane = 'now' AND task.tenant < %(tenant)s
               AND task.visible_at >= (SELECT others_from FROM bounds)
             ORDER BY task.queue, task.tenant, task.priority DESC, task.visible_at, task.seq
             LIMIT 1) IS NOT NULL AS yes
),
stretches AS MATERIALIZED (
    -- While an old snapshot is held, all that was leased since still lies at the head of its
    -- priority, dead, to be stepped over by every claim.
    SELECT *, lag(priority, 1, 101) OVER (ORDER BY priority DESC) AS above
      FROM unnest((SELECT %(tenants)s::text[]), (SELECT %(priorities)s::integer[]),
                  (SELECT %(visible_from)s::timestamptz[]), (SELECT %(seq_from)s::bigint[]))
               AS known (tenant, priority, visible_from, seq_from)
     WHERE tenant = %(tenant)s
     ORDER BY priority DESC
),
picked AS MATERIALIZED (
    -- LIMIT 1000 inside: the planner, told a number it can't guess, would rather sort.
    SELECT head.*
      FROM (SELECT priority, visible_from, seq_from, above, (SELECT since FROM bounds) AS since
              FROM stretches
             UNION ALL
            SELECT -101, NULL, NULL, coalesce(min(priority), 101), '-infinity'
              FROM stretches) AS stretch
     CROSS JOIN LATERAL (
           SELECT *
             FROM (SELECT task.seq, task.visible_at AS visible_since, task.token AS previous_token
                     FROM leasequeue_task AS task
                    WHERE task.queue = %(queue)s AND task.lane = 'now' AND task.tenant = %(tenant)s
                      AND task.priority < stretch.above AND task.priority > stretch.priority
                      AND task.visible_at >= stretch.since
                      AND NOT (SELECT yes FROM due) AND NOT (SELECT yes FROM others)
                      AND NOT EXISTS (SELECT FROM paused)
                    ORDER BY task.priority DESC, task.visible_at, task.seq
                    LIMIT 1000
                      FOR NO KEY UPDATE SKIP LOCKED) AS between_priorities
            UNION ALL
           SELECT *
             FROM (SELECT task.seq, task.visible_at, task.token
                     FROM leasequeue_task AS task
                    WHERE task.queue = %(queue)s AND task.lane = 'now' AND task.tenant = %(tenant)s
                      AND task.priority = stretch.priority
                      AND (task.visible_at, task.seq)
                          >= (stretch.visible_from, stretch.seq_from)
                      AND NOT (SELECT yes FROM due) AND NOT (SELECT yes FROM others)
                      AND NOT EXISTS (SELECT FROM paused)
                    ORDER BY task.visible_at, task.seq
                    LIMIT 1000
                      FOR NO KEY UPDATE SKIP LOCKED) AS of_the_priority) AS head
     LIMIT %(limit)s
),
numbered AS MATERIALIZED (
    -- Tokens are drawn after the locks: larger than any earlier one of the same task.
    SELECT nextval('leasequeue_transition_id_seq') AS token, picked.* FROM picked
),
leased AS (
    UPDATE leasequeue_task AS task
       SET state = 'leased', lane = 'later', attempt = task.attempt + 1, token = numbered.token,
           worker = %(worker)s, leased_at = clock.now,
           -- At UTC a day has 24 hours, whatever the session's zone.
           visible_at = (clock.now AT TIME ZONE 'UTC' + task.visibility) AT TIME ZONE 'UTC'
      FROM numbered, clock
     WHERE task.seq = numbered.seq
           -- Once more, as few: a planner who expects many would rather read the whole table.
       AND task.seq = ANY (ARRAY(SELECT seq FROM numbered))
 RETURNING task.*, numbered.visible_since, numbered.previous_token
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, token, worker, visible_at)
    SELECT token, life, 'leased', leased_at, queue, tenant, attempt, token, worker, visible_at
      FROM leased
),
answer AS (
    SELECT due.yes AS due, NOT others.yes AS alone FROM due, others
)
SELECT answer.due, answer.alone, leased.token, leased.seq, leased.life, leased.tenant,
       leased.task_id AS id, leased.dedupe_key, leased.attempt, leased.max_attempts,
       leased.max_lease, leased.priority, leased.path, leased.previous_token,
       leased.payload AS payload_text, leased.details AS details_text,
       leased.enqueued_at AT TIME ZONE 'UTC' AS enqueued_at,
       leased.visible_since AT TIME ZONE 'UTC' AS visible_since,
       leased.leased_at AT TIME ZONE 'UTC' AS leased_at,
       leased.visible_at AT TIME ZONE 'UTC' AS deadline
  FROM answer
  LEFT JOIN leased ON true;
