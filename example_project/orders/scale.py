"""The statements that make a large queue on PostgreSQL, as the moves would have left it."""

from __future__ import annotations

from typing import Final

# A life's number makes its queue, its tenant, its function and its times.
FACTS: Final = """
CREATE FUNCTION pg_temp.life(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql AS
$$ SELECT ('0199f000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid $$;
CREATE FUNCTION pg_temp.queue(n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS
$$ SELECT (ARRAY['mail', 'mail', 'mail', 'orders', 'orders', 'reports'])[n % 6 + 1] $$;
CREATE FUNCTION pg_temp.path(n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS
$$ SELECT 'shop.tasks.step_' || n % 20 $$;
CREATE FUNCTION pg_temp.error(n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS
$$ SELECT 'ValueError: no stock of article ' || n || ' in house ' || chr((65 + n % 26)::int) $$;
CREATE FUNCTION pg_temp.told(n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS
$$ SELECT '{"path":"' || pg_temp.path(n) || '","priority":0,"dedupe_key":null,"max_attempts":3,'
       || '"visibility_us":30000000,"max_lease_us":3600000000}' $$;
"""
PAST: Final = """
INSERT INTO leasequeue_transition
       (id, life, kind, at, queue, tenant, attempt, token, worker, visible_at, task_id, payload,
        data)
SELECT 3 * n + step, pg_temp.life(n),
       (ARRAY['enqueued', 'leased', 'acked'])[step],
       now() - interval '30 days' * (1 - n / %(lives)s::float) + step * interval '50 ms',
       pg_temp.queue(n), 'tenant ' || n %% 50, least(step - 1, 1),
       CASE WHEN step > 1 THEN 3 * n + 2 END, CASE WHEN step > 1 THEN 'worker-' || n %% 8 END,
       CASE WHEN step < 3 THEN now() - interval '30 days' * (1 - n / %(lives)s::float) END,
       CASE WHEN step = 1 THEN pg_temp.life(n)::text END,
       CASE WHEN step = 1 THEN '{"order":' || n || '}' END,
       CASE step WHEN 1 THEN pg_temp.told(n) WHEN 3 THEN '{"result":null}' END
  FROM generate_series(0, %(lives)s - 1) AS n, generate_series(1, 3) AS step
"""
HELD: Final = """
INSERT INTO leasequeue_transition
       (id, life, kind, at, queue, tenant, attempt, visible_at, task_id, payload, data)
SELECT %(from)s + n, pg_temp.life(%(lives)s + n), 'enqueued',
       now() - interval '2 days' * (1 - n / %(held)s::float), pg_temp.queue(n),
       'tenant ' || n %% 50, 0, now() - interval '2 days' * (1 - n / %(held)s::float),
       CASE WHEN n %% 2 = 0 THEN 'order-' || n ELSE pg_temp.life(%(lives)s + n)::text END,
       '{"order":' || n || '}', pg_temp.told(n)
  FROM generate_series(1, %(held)s) AS n
"""
# Of ten tasks one is dead, two are scheduled, and of two thousand three are leased.
TASKS: Final = """
INSERT INTO leasequeue_task
       (seq, life, queue, tenant, task_id, path, payload, priority, dedupe_key, live_key,
        max_attempts, visibility, max_lease, state, enqueued_at, visible_at, attempt, token, worker,
        leased_at, last_error, fingerprint, lane)
SELECT %(from)s + n, pg_temp.life(%(lives)s + n), pg_temp.queue(n), 'tenant ' || n %% 50,
       CASE WHEN n %% 2 = 0 THEN 'order-' || n ELSE pg_temp.life(%(lives)s + n)::text END,
       pg_temp.path(n), '{"order":' || n || '}', 0, NULL, NULL, 3, '30 s', '1 h', state,
       now() - interval '2 days' * (1 - n / %(held)s::float),
       now() + CASE WHEN state = 'leased' THEN interval '1 day'
                    WHEN lane = 'later' THEN interval '1 day' * (n %% 30 + 1)
                    ELSE interval '-2 days' * (1 - n / %(held)s::float) END,
       CASE WHEN state = 'ready' THEN 0 ELSE 3 END,
       CASE WHEN state <> 'ready' THEN %(from)s + n END,
       CASE WHEN state <> 'ready' THEN 'worker-' || n %% 8 END,
       CASE WHEN state <> 'ready' THEN now() END,
       CASE WHEN state = 'dead' AND n %% 4 > 0 THEN pg_temp.error(n) ELSE '' END,
       CASE WHEN state = 'dead' AND n %% 4 > 0
            THEN 'ValueError: no stock of article # in house ' || chr((65 + n %% 26)::int) END,
       lane
  FROM generate_series(1, %(held)s) AS n,
       LATERAL (SELECT CASE WHEN n %% 10 = 7 THEN 'dead' WHEN n %% 2000 IN (2, 4, 6) THEN 'leased'
                            ELSE 'ready' END AS state) AS stands,
       LATERAL (SELECT CASE WHEN state = 'dead' THEN NULL
                            WHEN state = 'leased' OR n %% 10 IN (3, 5) THEN 'later'
                            ELSE 'now' END AS lane) AS lies
"""
DEATHS: Final = """
INSERT INTO leasequeue_transition
       (id, life, kind, at, queue, tenant, attempt, token, worker, visible_at, data)
SELECT %(from)s + %(held)s + 2 * (task.seq - %(from)s) + step, task.life,
       (ARRAY['leased', 'dead'])[step], task.visible_at, task.queue, task.tenant, 3, task.token,
       task.worker, task.visible_at,
       CASE WHEN step = 2 AND task.last_error <> ''
            THEN json_build_object('error', json_build_object('type', 'ValueError', 'message',
                 task.last_error, 'traceback', '', 'summary', task.last_error))::text END
  FROM leasequeue_task AS task, generate_series(1, 2) AS step
 WHERE task.state = 'dead'
"""
SEQUENCE: Final = "SELECT setval(pg_get_serial_sequence('leasequeue_transition', 'id'), max(id))"
