-- notify: wake those who sleep until there is work.
--
-- in    class          integer       of the locks by which sleepers stand announced
--       queue          text
--       channel        text          that they listen to
--       all            boolean       also where nobody stands announced
-- out   one row
-- locks that of the queue's sleepers, tried: it isn't to be had where somebody sleeps. Not in a
--       transaction that has written, the site's own BEGIN: who wants to sleep would wait for its end
-- plan  no table: a notification makes committing notifiers wait for each other, so that it is only
--       sent where it is of use
SELECT CASE WHEN %(all)s::boolean
              OR pg_current_xact_id_if_assigned() IS NOT NULL
              OR NOT pg_try_advisory_xact_lock(%(class)s::integer, hashtext(%(queue)s::text))
            THEN pg_notify(%(channel)s::text, %(queue)s::text) END AS sent;
