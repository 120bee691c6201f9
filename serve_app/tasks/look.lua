-- What `submit` would answer now, whatever the task is. Changes nothing.
-- idempotency_key body_hash project organization price max_queued max_active key_id every_ms burst max_memory; `price`
-- is the least that it can cost
-- Returns {1}: it may be accepted. Else as `submit`: {2, reply}, {3} or {0, why, ...}.
return repeated(ARGV[3], ARGV[4], '') or refused(ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]),
  tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), now_ms()) or { 1 }
