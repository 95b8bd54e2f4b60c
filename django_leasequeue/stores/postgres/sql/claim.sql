-- claim: lease tasks of the only tenant that has visible ones; where that isn't so, say so.
--
-- in    queue, tenant, worker   text
--       limit          integer       at most 1000
--       gate           boolean       whether to look for what came due
--       since, others_from, due_from timestamptz, now   as claim_rotating
-- out   due            boolean       something came due: settle first; nothing was leased
--       alone          boolean       false: a second tenant has visible tasks; nothing was leased
--       token …        one row per lease; a single row with NULL where there is none
-- locks task rows, stepping over locked ones; against a pause, until the commit
-- plan  leasequeue_task_now for picks and tenants, leasequeue_task_later for the probe
WITH
-- part: looked
-- part: sole
picked AS MATERIALIZED (
    -- LIMIT 1000 inside: the planner, told a number it can't guess, would rather sort.
    SELECT head.*
      FROM (SELECT task.seq, task.visible_at AS visible_since, task.token AS previous_token
              FROM leasequeue_task AS task
             WHERE task.queue = %(queue)s AND task.lane = 'now' AND task.tenant = %(tenant)s
               AND NOT (SELECT yes FROM due) AND NOT (SELECT yes FROM others)
               AND NOT EXISTS (SELECT FROM paused)
             ORDER BY task.priority DESC, task.visible_at, task.seq
             LIMIT 1000
               FOR NO KEY UPDATE SKIP LOCKED) AS head
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
