#!lua flags=no-writes
-- How old things are that should not get old, in ms: the task of the queue that has waited longest since its submission,
-- the lease and the deadline that are longest over.
-- No index has waiting tasks by their submission, but their deadlines follow it, until work begins. So it is looked for
-- among those that wait and whose deadlines are nearest; leased ones, which may be nearer, are bounded by max_leased.
local SCAN_LIMIT = 64
local now, oldest, waiting = now_ms(), 0, 0

local function overdue(index)
  local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return first[2] and math.max(0, now - tonumber(first[2])) or 0
end

for _, id in ipairs(redis.call('ZRANGE', DEADLINES, 0, redis.call('ZCARD', LEASED) + SCAN_LIMIT - 1)) do
  if waiting == SCAN_LIMIT then break end
  if not redis.call('ZSCORE', LEASED, id) then
    waiting = waiting + 1
    oldest = math.max(oldest, now - tonumber(redis.call('HGET', task_key(id), 'created') or now))
  end
end
return { oldest, overdue(LEASED), overdue(DEADLINES) }
