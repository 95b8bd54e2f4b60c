-- held: the number of a held task.
--
-- in    queue, tenant, id   text
--       life           uuid          the life whose text the id is, or NULL
-- out   seq            bigint        one row where the task is held
-- locks nothing
-- plan  leasequeue_task_id or leasequeue_transition_life, then leasequeue_task_pkey
SELECT task.seq
  FROM leasequeue_task AS task
 WHERE task.queue = %(queue)s AND task.tenant = %(tenant)s AND task.task_id = %(id)s
   AND task.task_id <> task.life::text
 UNION ALL
SELECT task.seq
  FROM leasequeue_task AS task
 WHERE task.seq = (SELECT first.id
                     FROM leasequeue_transition AS first
                    WHERE first.life = %(life)s::uuid
                    ORDER BY first.life, first.id
                    LIMIT 1)
   AND task.queue = %(queue)s AND task.tenant = %(tenant)s AND task.task_id = %(id)s;
