#!lua flags=allow-oom
-- Chooses the queue whose model uses a device that holds one of several models at a time.
-- Arguments: device, turn_ms, queues
-- A queue keeps its turn while it has tasks, but only for turn_ms if another waits. The next turn is that of the queue
-- that has waited longest. Answers the `queue`; none before the first turn.
local a = cjson.decode(ARGV[3])
local TURN, now, busy, first, longest = P .. 'turn:' .. a.device, now_ms(), false, nil, nil
local holder, since = redis.call('HGET', TURN, 'queue'), tonumber(redis.call('HGET', TURN, 'since') or 0)
for _, queue in ipairs(a.queues) do
  enter(queue)
  local waits, waiting_since = redis.call('EXISTS', QUEUED, QUARANTINED) > 0, 'waits:' .. QUEUE
  if QUEUE == holder then
    busy = waits or redis.call('EXISTS', LEASED) > 0
  elseif waits then
    redis.call('HSETNX', TURN, waiting_since, now)
    local started_at = tonumber(redis.call('HGET', TURN, waiting_since))
    if not longest or started_at < longest then first, longest = QUEUE, started_at end
  else
    redis.call('HDEL', TURN, waiting_since)
  end
end
if first and (not busy or now - since >= a.turn_ms) then
  redis.call('HSET', TURN, 'queue', first, 'since', now)
  redis.call('HDEL', TURN, 'waits:' .. first)
  holder = first
end
return cjson.encode({ queue = holder or nil })
