-- erase: blank what one life knew, in log and projection; the function of migration 0002 does it.
--
-- in    queue          text
--       life           uuid
--       data           text          a JSON object: who, and why
--       now            timestamptz   NULL: the database's clock
-- out   done           boolean       false: the queue has no such life on record
-- locks the task row and the lock of pruning, waiting for both
-- plan  the unique index on life, leasequeue_transition_life
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
)
SELECT leasequeue_erase(%(queue)s::text, %(life)s::uuid, now, %(data)s::text) AS done
  FROM clock;
