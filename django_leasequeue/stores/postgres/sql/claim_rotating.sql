-- claim_rotating: lease tasks of all tenants in turn; where something came due, say so instead.
--
-- The rotation is a loose index scan from the tenant that was served last. Claims in flight read
-- the same place: the first free of 16 positions keeps them apart, and nobody waits. One task per
-- tenant in the first lap; where tenants are fewer than asked for, each gives its share of the
-- further laps, and the tokens interleave them.
--
-- in    queue, worker  text
--       limit          integer
--       gate           boolean       whether to look for what came due
--       tenants        text[]        whose visible tasks begin where: with
--       priorities     smallint[]    the tasks of that priority at
--       visible_from   timestamptz[] that instant and
--       seq_from       bigint[]      that number, and those of priorities between at
--       since          timestamptz   that instant; of lower ones all are looked for
--       others_from    timestamptz   before it, no other tenant's are looked for; NULL: all are
--       due_from       timestamptz   what came due before that isn't looked for; NULL: all is
--       now            timestamptz   NULL: the database's clock
-- out   due            boolean       something came due: settle first; nothing was leased
--       alone          boolean       no second tenant is known, or has visible tasks
--       token …        one row per lease; a single row with NULL where there is none
-- locks task rows, stepping over locked ones; until the commit an advisory lock
--       on the position, and one against a pause
-- plan  leasequeue_task_now for each tenant and pick, leasequeue_task_later for the probe
WITH RECURSIVE
-- part: looked
place AS MATERIALIZED (
    SELECT tenant, stamp
      FROM leasequeue_turn
     WHERE queue = %(queue)s::text
     ORDER BY queue DESC, stamp DESC, token DESC
     LIMIT 1
),
ahead AS MATERIALIZED (
    SELECT coalesce((
               SELECT position
                 FROM generate_series(0, 15) AS position, place
                WHERE place.stamp > 1 AND %(limit)s::integer <= 10
                  AND pg_try_advisory_xact_lock(
                          hashtext('leasequeue ' || %(queue)s::text),
                          ((place.stamp + position * %(limit)s::integer) %% 2147483647)::integer)
                LIMIT 1), 0) * %(limit)s::integer AS hops
),
stretches AS MATERIALIZED (
    -- While an old snapshot is held, all that was leased since still lies at the head of its
    -- tenant's priority, dead, to be stepped over by every claim.
    SELECT *, lag(priority, 1, 101) OVER (PARTITION BY tenant ORDER BY priority DESC) AS above
      FROM unnest((SELECT %(tenants)s::text[]), (SELECT %(priorities)s::integer[]),
                  (SELECT %(visible_from)s::timestamptz[]), (SELECT %(seq_from)s::bigint[]))
               AS known (tenant, priority, visible_from, seq_from)
     ORDER BY tenant, priority DESC
),
known AS MATERIALIZED (
    SELECT DISTINCT tenant COLLATE "C" AS tenant FROM stretches
),
hop (tenant, start, wrapped, stop, number) AS (
    -- Tenants with visible tasks, from behind the place once around, found one by one as needed.
    -- Those that are known aren't looked for: whether they still have some, the lap will tell.
    SELECT NULL::text COLLATE "C", coalesce(place.tenant || chr(1), ''), place.tenant IS NULL,
           place.tenant, 0
      FROM (SELECT 1) AS one
      LEFT JOIN place ON true
     WHERE NOT (SELECT yes FROM due) AND NOT EXISTS (SELECT FROM paused)
     UNION ALL
    -- No text comes between a tenant and the same followed by the first of all characters.
    SELECT next.tenant, next.tenant || chr(1), next.wrapped, hop.stop, hop.number + 1
      FROM hop
     CROSS JOIN LATERAL (
           SELECT found.tenant, begin.wrapped
             FROM (SELECT hop.start AS tenant, hop.wrapped AS wrapped
                    UNION ALL
                   SELECT '', true WHERE NOT hop.wrapped) AS begin
            CROSS JOIN LATERAL (
                  SELECT min(known.tenant) AS tenant
                    FROM known
                   WHERE known.tenant >= begin.tenant) AS known
            CROSS JOIN LATERAL (
                  SELECT coalesce(
                     (SELECT task.tenant
                        FROM leasequeue_task AS task
                       WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                         AND task.tenant >= begin.tenant AND task.tenant < known.tenant
                         AND task.visible_at >= (SELECT others_from FROM bounds)
                       ORDER BY task.queue, task.tenant, task.priority DESC,
                                task.visible_at, task.seq
                       LIMIT 1),
                     known.tenant,
                     (SELECT task.tenant
                        FROM leasequeue_task AS task
                       WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                         AND task.tenant >= begin.tenant AND known.tenant IS NULL
                         AND task.visible_at >= (SELECT others_from FROM bounds)
                       ORDER BY task.queue, task.tenant, task.priority DESC,
                                task.visible_at, task.seq
                       LIMIT 1)) AS tenant
                  OFFSET 0) AS found
            WHERE found.tenant IS NOT NULL
            LIMIT 1) AS next
     WHERE NOT (next.wrapped AND hop.stop IS NOT NULL AND next.tenant > hop.stop)
),
first_lap AS MATERIALIZED (
    SELECT row_number() OVER () AS turn, one.*
      FROM (SELECT hop.tenant, hop.number, head.*
              FROM (SELECT * FROM hop WHERE number > (SELECT hops FROM ahead)
                     UNION ALL
                    SELECT * FROM hop
                     WHERE number BETWEEN 1 AND (SELECT hops FROM ahead)) AS hop
             CROSS JOIN LATERAL (
                   SELECT head.*
                     FROM (SELECT priority, visible_from, seq_from, above,
                                  (SELECT since FROM bounds) AS since
                             FROM stretches
                            WHERE tenant = hop.tenant
                            UNION ALL
                           SELECT -101, NULL, NULL, coalesce(min(priority), 101), '-infinity'
                             FROM stretches
                            WHERE tenant = hop.tenant) AS stretch
                    CROSS JOIN LATERAL (
                          SELECT *
                            FROM (SELECT task.seq, task.visible_at AS visible_since,
                                         task.token AS previous_token
                                    FROM leasequeue_task AS task
                                   WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                                     AND task.tenant = hop.tenant
                                     AND task.priority < stretch.above
                                     AND task.priority > stretch.priority
                                     AND task.visible_at >= stretch.since
                                   ORDER BY task.priority DESC, task.visible_at, task.seq
                                   LIMIT 1
                                     FOR NO KEY UPDATE SKIP LOCKED) AS between_priorities
                           UNION ALL
                          SELECT *
                            FROM (SELECT task.seq, task.visible_at, task.token
                                    FROM leasequeue_task AS task
                                   WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                                     AND task.tenant = hop.tenant
                                     AND task.priority = stretch.priority
                                     AND (task.visible_at, task.seq)
                                         >= (stretch.visible_from, stretch.seq_from)
                                   ORDER BY task.visible_at, task.seq
                                   LIMIT 1
                                     FOR NO KEY UPDATE SKIP LOCKED) AS of_the_priority) AS head
                    LIMIT 1) AS head
             LIMIT %(limit)s::integer) AS one
),
served AS MATERIALIZED (
    SELECT count(*) AS tenants FROM first_lap
),
further AS MATERIALIZED (
    SELECT row_number() OVER () AS found, lap.turn, lap.tenant, lap.number, share.*
      FROM first_lap AS lap
     CROSS JOIN LATERAL (
           -- LIMIT 1000 inside: the planner, told a number it can't guess, would rather sort.
           SELECT head.*
             FROM (SELECT priority, visible_from, seq_from, above,
                          (SELECT since FROM bounds) AS since
                     FROM stretches
                    WHERE tenant = lap.tenant
                    UNION ALL
                   SELECT -101, NULL, NULL, coalesce(min(priority), 101), '-infinity'
                     FROM stretches
                    WHERE tenant = lap.tenant) AS stretch
            CROSS JOIN LATERAL (
                  SELECT *
                    FROM (SELECT task.seq, task.visible_at AS visible_since,
                                 task.token AS previous_token
                            FROM leasequeue_task AS task
                           WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                             AND task.tenant = lap.tenant AND task.seq <> lap.seq
                             AND task.priority < stretch.above
                             AND task.priority > stretch.priority
                             AND task.visible_at >= stretch.since
                           ORDER BY task.priority DESC, task.visible_at, task.seq
                           LIMIT 1000
                             FOR NO KEY UPDATE SKIP LOCKED) AS between_priorities
                   UNION ALL
                  SELECT *
                    FROM (SELECT task.seq, task.visible_at, task.token
                            FROM leasequeue_task AS task
                           WHERE task.queue = %(queue)s::text AND task.lane = 'now'
                             AND task.tenant = lap.tenant AND task.seq <> lap.seq
                             AND task.priority = stretch.priority
                             AND (task.visible_at, task.seq)
                                 >= (stretch.visible_from, stretch.seq_from)
                           ORDER BY task.visible_at, task.seq
                           LIMIT 1000
                             FOR NO KEY UPDATE SKIP LOCKED) AS of_the_priority) AS head
            LIMIT ((%(limit)s::integer - lap.turn) / (SELECT tenants FROM served))) AS share
),
picked AS MATERIALIZED (
    SELECT 1::bigint AS lap, turn, number, tenant, seq, visible_since, previous_token
      FROM first_lap
     UNION ALL
    SELECT 1 + row_number() OVER (PARTITION BY turn ORDER BY found), turn, number, tenant, seq,
           visible_since, previous_token
      FROM further
),
numbered AS MATERIALIZED (
    -- Tokens are drawn after the locks: larger than any earlier one of the same task.
    SELECT nextval('leasequeue_transition_id_seq') AS token, picked.*
      FROM (SELECT * FROM picked ORDER BY lap, turn) AS picked
),
-- part: leased
marked AS (
    -- A queue with one tenant writes a single row, once in its life.
    INSERT INTO leasequeue_turn (queue, stamp, token, tenant)
    SELECT %(queue)s::text,
           coalesce(place.stamp, 0) + last.number + (last.lap - 1) * (SELECT tenants FROM served),
           last.token, last.tenant
      FROM (SELECT * FROM numbered ORDER BY token DESC LIMIT 1) AS last
      LEFT JOIN place ON true
     WHERE place.tenant IS DISTINCT FROM last.tenant OR (SELECT tenants FROM served) > 1
),
answer AS (
    SELECT (SELECT yes FROM due) AS due,
           (SELECT count(*) < 2 FROM (SELECT FROM hop WHERE number > 0 LIMIT 2) AS seen) AS alone
)
-- part: answered
