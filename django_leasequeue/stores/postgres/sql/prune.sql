-- prune: forget a batch of what is old enough; the function of migration 0002 does it.
--
-- in    kinds          text[]        acked, dropped, cancelled: the whole life; duplicate, heartbeat
--       queues         text[]        NULL: all
--       seconds        double        how old at least
--       behind         bigint        log position to go on from
--       size           integer       rows to look at, at most
--       now            timestamptz   NULL: the database's clock
-- out   upto           bigint        where to go on; NULL: somebody else is pruning
--       pruned         bigint        rows that are gone
--       more           boolean       there may be more to do at once
-- locks an advisory lock, the rows it removes, the tallies of their queues
-- plan  leasequeue_transition_pkey from a position on, leasequeue_transition_life
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
)
SELECT batch.upto, batch.pruned, batch.more
  FROM clock,
       leasequeue_prune(%(kinds)s::text[], %(queues)s::text[],
                        now - make_interval(secs => %(seconds)s), now,
                        %(behind)s::bigint, %(size)s::integer) AS batch;
