-- depth: count a queue's tasks as the clock has them.
--
-- in    queue          text
--       now            timestamptz   NULL: the database's clock
-- out   visible, scheduled, leased, dead   bigint
--       oldest         interval      since when the oldest visible task is visible; NULL: none
-- locks nothing
-- plan  reads the whole queue
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
),
held AS (
    SELECT task.visible_at,
           CASE WHEN task.state = 'leased' AND task.visible_at <= clock.now
                THEN CASE WHEN task.attempt >= task.max_attempts THEN 'dead' ELSE 'ready' END
                WHEN task.state = 'ready' AND task.visible_at > clock.now THEN 'scheduled'
                ELSE task.state END AS state
      FROM clock, leasequeue_task AS task
     WHERE task.queue = %(queue)s
)
SELECT count(*) FILTER (WHERE state = 'ready') AS visible,
       count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
       count(*) FILTER (WHERE state = 'leased') AS leased,
       count(*) FILTER (WHERE state = 'dead') AS dead,
       (SELECT now FROM clock) - min(visible_at) FILTER (WHERE state = 'ready') AS oldest
  FROM held;
