-- cancel: take a held task away.
--
-- in    queue, tenant, id   text
--       life           uuid          the life whose text the id is, or NULL
--       data           text          a JSON object: who, and why
--       now            timestamptz   NULL: the database's clock
-- out   seq            bigint        one row where the task was held
-- locks the task row, waiting for those who change it
-- plan  leasequeue_task_id or leasequeue_transition_life, then leasequeue_task_pkey
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
held AS MATERIALIZED (
    SELECT task.seq, task.life, task.attempt, task.token, task.worker
      FROM leasequeue_task AS task
     WHERE task.seq = coalesce(
               (SELECT named.seq
                  FROM leasequeue_task AS named
                 WHERE named.queue = %(queue)s AND named.tenant = %(tenant)s
                   AND named.task_id = %(id)s AND named.task_id <> named.life::text),
               (SELECT first.id
                  FROM leasequeue_transition AS first
                 WHERE first.life = %(life)s::uuid
                 ORDER BY first.life, first.id
                 LIMIT 1))
       AND task.queue = %(queue)s AND task.tenant = %(tenant)s AND task.task_id = %(id)s
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
RETURNING task.seq;
