-- now: the present instant.
--
-- in    now            timestamptz   NULL: the database's clock
-- out   now            timestamp     UTC
-- locks nothing
-- plan  no table
SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AT TIME ZONE 'UTC' AS now;
