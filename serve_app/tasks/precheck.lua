-- Answers the rejection that `submit` would answer now to any task, or `passed`. Only claims the idempotency key for
-- the task `id` for claim_ms.
-- Arguments: those of `submit` that admission.lua reads, claim_ms; `price` is the minimum cost of the task.
local a = cjson.decode(ARGV[3])
local obstacle = find_earlier(a) or check_limits(a, now_ms())
if obstacle then return cjson.encode(obstacle) end
if a.idempotency_key then
  redis.call('HSET', a.idempotency_key, 'body', a.body_hash, 'id', a.id)
  redis.call('PEXPIRE', a.idempotency_key, a.claim_ms)
end
return answer('passed')
