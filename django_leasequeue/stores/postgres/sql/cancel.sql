-- cancel: take held tasks away.
--
-- in    queue, tenant  text
--       ids            text[]
--       lives          uuid[]        the life whose text each id is, or NULL
--       data           text          a JSON object: who, and why
--       now            timestamptz   NULL: the database's clock
-- out   id             text          one row per task that was held
-- locks task rows in ascending seq, waiting for those who change them
-- plan  leasequeue_task_id and leasequeue_transition_life, then leasequeue_task_pkey
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
held AS MATERIALIZED (
    SELECT task.seq, task.life, task.attempt, task.token, task.worker
      FROM leasequeue_task AS task
     WHERE task.seq = ANY (ARRAY(SELECT seq FROM named))
       AND task.queue = %(queue)s AND task.tenant = %(tenant)s
       AND task.task_id = ANY (%(ids)s::text[])
     ORDER BY task.seq
       FOR UPDATE
),
logged AS (
    INSERT INTO leasequeue_transition
           (life, kind, at, queue, tenant, attempt, token, worker, data)
    SELECT life, 'cancelled', (SELECT now FROM clock), %(queue)s::text, %(tenant)s::text, attempt,
           token, worker, %(data)s::text
      FROM held
)
DELETE FROM leasequeue_task AS task
 USING held
 WHERE task.seq = held.seq
   -- Once more, as few: a planner who expects many would rather read the whole table.
   AND task.seq = ANY (ARRAY(SELECT seq FROM held))
RETURNING task.task_id AS id;
