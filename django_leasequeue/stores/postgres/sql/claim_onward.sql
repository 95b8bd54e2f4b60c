-- claim_onward: as claim, beginning where claims before it ended.
--
-- Of its own, since an idle worker's claim would take half as long again.
--
-- in    as claim, and tenants, priorities, visible_from, seq_from as claim_rotating
-- out, locks, plan     as claim
WITH
-- part: looked
-- part: sole
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
-- part: leased
answer AS (
    SELECT due.yes AS due, NOT others.yes AS alone FROM due, others
)
-- part: answered
