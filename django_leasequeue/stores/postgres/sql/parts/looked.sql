-- What a claim looks at before any task: the time, what came due, whether the queue is paused.
clock AS MATERIALIZED (
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
                WHERE task.queue = %(queue)s::text AND task.lane = 'later'
                  AND task.visible_at >= (SELECT due_from FROM bounds)
                ORDER BY task.queue, task.visible_at, task.seq
                LIMIT 1) <= (SELECT now FROM clock), false) AS yes
),
paused AS MATERIALIZED (
    -- Not for the rows, of which there is none but while paused: looked at so, the table stays
    -- locked until the commit, and a pause waits for that.
    SELECT FROM leasequeue_pause WHERE paused_queue = %(queue)s::text FOR KEY SHARE
),
