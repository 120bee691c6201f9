#!lua flags=no-writes
-- Answers ages in ms: `waiting_ms` since the submission of the task that has waited longest, `lease_ms` and
-- `deadline_ms` since the earliest expired lease and deadline.
-- No index sorts waiting tasks by submission, but until work begins, their deadlines have the same order. So the script
-- reads the waiting tasks with the nearest deadlines. Leased ones may be nearer; max_leased bounds them.
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
