#!lua flags=allow-oom
-- Moves what the release before keeps under other names: the queue of this lane, and the index of retention.
-- Returns how many tasks were moved.
local function move(old, new)
  local moved = redis.call('ZCARD', old)
  if moved > 0 then
    redis.call('ZUNIONSTORE', new, 2, new, old, 'AGGREGATE', 'MIN')
    redis.call('DEL', old)
  end
  return moved
end

local moved = move(P .. 'ready:' .. LANE, QUEUED)
if moved > 0 then redis.call('PUBLISH', WAKE, '1') end
return moved + move(P .. 'expiring', RETENTION)
