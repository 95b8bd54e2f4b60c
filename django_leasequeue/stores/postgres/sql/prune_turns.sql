-- prune_turns: forget the places of a queue's rotation that no claim will read any more.
--
-- in    queue          text
-- out   stamp          bigint        one row per forgotten place
-- locks turn rows, stepping over locked ones
-- plan  leasequeue_turn_pkey, once it has pages
WITH newest AS MATERIALIZED (
    SELECT stamp
      FROM leasequeue_turn
     WHERE queue = %(queue)s
     ORDER BY queue DESC, stamp DESC, token DESC
     LIMIT 1
),
old AS MATERIALIZED (
    SELECT turn.queue, turn.stamp, turn.token
      FROM leasequeue_turn AS turn
     WHERE turn.queue = %(queue)s
       -- Claims in flight may still publish places that they read this long ago.
       AND turn.stamp < (SELECT stamp - 1000 FROM newest)
       FOR UPDATE SKIP LOCKED
)
DELETE FROM leasequeue_turn AS turn
 USING old
 WHERE (turn.queue, turn.stamp, turn.token) = (old.queue, old.stamp, old.token)
RETURNING turn.stamp;
