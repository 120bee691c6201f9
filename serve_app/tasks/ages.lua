#!lua flags=no-writes
-- Answers ages in ms: `waiting_ms` since the submission of the task that has waited longest, `lease_ms` and
-- `deadline_ms` since the lease and the deadline that are longest over.
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
return cjson.encode({ waiting_ms = oldest, lease_ms = overdue(LEASED), deadline_ms = overdue(DEADLINES) })
