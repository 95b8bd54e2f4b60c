-- outlook: whether a claim is worth while now, and how long until more comes due.
--
-- in    queue          text
--       now            timestamptz   NULL: the database's clock
-- out   visible        boolean       something is to be leased, or to be settled
--       remaining      interval      NULL: no scheduled time or deadline will come due
-- locks nothing
-- plan  leasequeue_task_now for what is visible, leasequeue_task_later for what is due
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
)
SELECT (SELECT task.seq
          FROM leasequeue_task AS task
         WHERE task.queue = %(queue)s AND task.lane = 'now'
         ORDER BY task.queue, task.tenant, task.priority DESC, task.visible_at, task.seq
         LIMIT 1) IS NOT NULL
    OR (SELECT task.seq
          FROM leasequeue_task AS task
         WHERE task.queue = %(queue)s AND task.lane = 'later'
           AND task.visible_at <= (SELECT now FROM clock)
         ORDER BY task.queue, task.visible_at, task.seq
         LIMIT 1) IS NOT NULL AS visible,
       (SELECT task.visible_at
          FROM leasequeue_task AS task
         WHERE task.queue = %(queue)s AND task.lane = 'later'
           AND task.visible_at > (SELECT now FROM clock)
         ORDER BY task.queue, task.visible_at, task.seq
         LIMIT 1) - (SELECT now FROM clock) AS remaining;
