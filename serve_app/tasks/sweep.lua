-- Names tasks whose retention is over, so that their objects can be deleted, and forgets those deleted before.
-- claim_ms limit, then the ids whose objects are gone
-- Returns ids. A claim that is never confirmed comes up again after claim_ms.
for i = 5, #ARGV do
  local key = task_key(ARGV[i])
  local project = redis.call('HGET', key, 'project')
  if project then redis.call('ZREM', P .. 'tasks:' .. project, ARGV[i]) end
  redis.call('DEL', key)
  redis.call('ZREM', EXPIRING, ARGV[i])
  redis.call('ZREM', OUTBOX, ARGV[i])
end
local now = now_ms()
local ids = redis.call('ZRANGEBYSCORE', EXPIRING, '-inf', now, 'LIMIT', 0, tonumber(ARGV[4]))
for _, id in ipairs(ids) do redis.call('ZADD', EXPIRING, now + tonumber(ARGV[3]), id) end
return ids
