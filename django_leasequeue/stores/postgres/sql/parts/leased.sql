-- What a claim has locked and numbered becomes leased, in the projection and in the log.
leased AS (
    UPDATE leasequeue_task AS task
       SET state = 'leased', lane = 'later', attempt = task.attempt + 1, token = numbered.token,
           worker = %(worker)s, leased_at = clock.now,
           -- At UTC a day has 24 hours, whatever the session's zone.
           visible_at = (clock.now AT TIME ZONE 'UTC' + task.visibility) AT TIME ZONE 'UTC'
      FROM numbered, clock
     WHERE task.seq = numbered.seq
           -- Once more, as few: a planner who expects many would rather read the whole table.
       AND task.seq = ANY (ARRAY(SELECT seq FROM numbered))
 RETURNING task.*, numbered.visible_since, numbered.previous_token
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, token, worker, visible_at)
    SELECT token, life, 'leased', leased_at, queue, tenant, attempt, token, worker, visible_at
      FROM leased
),
