-- Names tasks whose retention is over, so that their objects can be deleted, and forgets those deleted before.
-- A task whose webhook is still on its way stays until that has ended.
-- claim_ms limit, then the ids whose objects are gone
-- Returns ids. A claim that is never confirmed comes up again after claim_ms.
for i = 5, #ARGV do
  local key = task_key(ARGV[i])
  local project = redis.call('HGET', key, 'project')
  if project then redis.call('ZREM', P .. 'tasks:' .. project, ARGV[i]) end
  redis.call('DEL', key)
  redis.call('ZREM', RETENTION, ARGV[i])
  forget_delivery(ARGV[i])
end
local now = now_ms()
local ids = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', RETENTION, '-inf', now, 'LIMIT', 0, tonumber(ARGV[4]))) do
  redis.call('ZADD', RETENTION, now + tonumber(ARGV[3]), id)
  if not is_on_its_way(id) then ids[#ids + 1] = id end
end
return ids
