-- What a claim answers.
SELECT answer.due, answer.alone, leased.token, leased.seq, leased.life, leased.tenant,
       leased.task_id AS id, leased.dedupe_key, leased.attempt, leased.max_attempts,
       leased.max_lease, leased.priority, leased.path, leased.previous_token,
       leased.payload AS payload_text, leased.details AS details_text,
       leased.enqueued_at AT TIME ZONE 'UTC' AS enqueued_at,
       leased.visible_since AT TIME ZONE 'UTC' AS visible_since,
       leased.leased_at AT TIME ZONE 'UTC' AS leased_at,
       leased.visible_at AT TIME ZONE 'UTC' AS deadline
  FROM answer
  LEFT JOIN leased ON true;
