-- What `submit` would answer now, whatever the task is. Changes nothing, but that the idempotency key is kept for the task
-- `id`, where one is named, for claim_ms.
-- idempotency_key body_hash project organization price max_queued max_active key_id every_ms burst max_memory id
-- claim_ms; `price` is the least that it can cost
-- Returns {1}: it may be accepted. Else as `submit`: {2, reply}, {3}, {4} or {0, why, ...}.
local idem, id = ARGV[3], ARGV[14]
local answer = find_earlier(idem, ARGV[4], id) or check_limits(ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]),
  tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), now_ms())
if answer then return answer end
if idem ~= '' and id ~= '' then
  redis.call('HSET', idem, 'body', ARGV[4], 'id', id)
  redis.call('PEXPIRE', idem, ARGV[15])
end
return { 1 }
