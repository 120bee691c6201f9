#!lua flags=allow-oom
-- Names tasks whose retention is over, so that their objects can be deleted, and forgets those deleted before.
-- A task whose webhook is still on its way stays until that has ended. One that others are made of stays, too, until
-- they have; it is named only if its owner `deleted` it, for what they don't need to go.
-- claim_ms limit, then the ids whose objects are gone
-- Returns whether there may be more (1 | 0), then ids. A claim that is never confirmed comes up again after claim_ms.
local SCAN_LIMIT = 2000
for i = 5, #ARGV do
  local key = task_key(ARGV[i])
  local project = redis.call('HGET', key, 'project')
  if project then redis.call('ZREM', P .. 'tasks:' .. project, ARGV[i]) end
  redis.call('DEL', key)
  redis.call('ZREM', RETENTION, ARGV[i])
  forget_delivery(ARGV[i])
end
local function is_kept(id)
  -- A dispatcher of an earlier release ends tasks without taking them out here.
  for _, each in ipairs(redis.call('SMEMBERS', needed_key(id))) do
    local status = redis.call('HGET', task_key(each), 'status')
    if not status or TERMINAL[status] then redis.call('SREM', needed_key(id), each) end
  end
  if redis.call('EXISTS', needed_key(id)) == 0 then return is_on_its_way(id) end
  return redis.call('HEXISTS', task_key(id), 'deleted') == 0 or is_on_its_way(id)
end

local now, limit = now_ms(), tonumber(ARGV[4])
local due = redis.call('ZRANGEBYSCORE', RETENTION, '-inf', now, 'LIMIT', 0, SCAN_LIMIT)
local result = { #due == SCAN_LIMIT and 1 or 0 }
for _, id in ipairs(due) do
  if #result > limit then
    result[1] = 1
    break
  end
  redis.call('ZADD', RETENTION, now + tonumber(ARGV[3]), id)
  if not is_kept(id) then result[#result + 1] = id end
end
return result
