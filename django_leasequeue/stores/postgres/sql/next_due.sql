-- next_due: how long until a scheduled time or a deadline comes due.
--
-- in    queue          text
--       now            timestamptz   NULL: the database's clock
-- out   remaining      interval      no row: nothing will
-- locks nothing
-- plan  leasequeue_task_later
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
)
SELECT task.visible_at - (SELECT now FROM clock) AS remaining
  FROM leasequeue_task AS task
 WHERE task.queue = %(queue)s AND task.lane = 'later'
   AND task.visible_at > (SELECT now FROM clock)
 ORDER BY task.queue, task.visible_at, task.seq
 LIMIT 1;
