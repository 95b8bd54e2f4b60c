-- Whether a second tenant has visible tasks: then a claim for the one that is known takes none.
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
