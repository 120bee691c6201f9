-- Answers the rejection that `submit` would answer now to any task, or `passed`. Only claims the idempotency key for
-- the task `id` for claim_ms.
-- Arguments: those of `submit` that admission.lua reads, not_after_ms, claim_ms; `price` is the minimum cost of the task.
local a, now = cjson.decode(ARGV[3]), now_ms()
local obstacle = find_earlier(a) or check_limits(a, now)
if obstacle then return cjson.encode(obstacle) end
-- A server that stood still keeps no key for a request that has got its answer meanwhile.
if now > a.not_after_ms then return cjson.encode(reject('expired')) end
if a.idempotency_key then
  redis.call('HSET', a.idempotency_key, 'body', a.body_hash, 'id', a.id)
  redis.call('PEXPIRE', a.idempotency_key, a.claim_ms)
end
return answer('passed')
