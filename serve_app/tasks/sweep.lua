#!lua flags=allow-oom
-- Claims tasks whose retention is over, so that their objects can be deleted, and forgets those deleted before.
-- A task stays until its webhook has ended, and until the tasks that need its objects have ended. If its owner `deleted`
-- it, it is claimed before, for the objects that they don't need.
-- Arguments: deleted (ids whose objects are gone), limit, claim_ms
-- Answers `ids`, and whether there may be `more`. A claim that is never confirmed comes up again after claim_ms.
local SCAN_LIMIT = 2000
local a = cjson.decode(ARGV[3])
for _, id in ipairs(a.deleted) do
  local key = task_key(id)
  local project = redis.call('HGET', key, 'project')
  if project then redis.call('ZREM', P .. 'tasks:' .. project, id) end
  redis.call('DEL', key)
  redis.call('ZREM', RETENTION, id)
  forget_delivery(id)
end
local function is_kept(id)
  -- Dispatchers of an earlier release don't remove ended tasks here.
  for _, each in ipairs(redis.call('SMEMBERS', needed_key(id))) do
    local status = redis.call('HGET', task_key(each), 'status')
    if not status or TERMINAL[status] then redis.call('SREM', needed_key(id), each) end
  end
  if redis.call('EXISTS', needed_key(id)) == 0 then return is_on_its_way(id) end
  return redis.call('HEXISTS', task_key(id), 'deleted') == 0 or is_on_its_way(id)
end

local now, ids = now_ms(), {}
local due = redis.call('ZRANGEBYSCORE', RETENTION, '-inf', now, 'LIMIT', 0, SCAN_LIMIT)
local more = #due == SCAN_LIMIT
for _, id in ipairs(due) do
  if #ids >= a.limit then
    more = true
    break
  end
  redis.call('ZADD', RETENTION, now + a.claim_ms, id)
  if not is_kept(id) then ids[#ids + 1] = id end
end
return cjson.encode({ ids = ids, more = more })
