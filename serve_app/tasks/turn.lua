#!lua flags=allow-oom
-- Whose turn it is on a device that has room for one of several models at a time. device turn_ms queue ...
-- A queue keeps its turn while it has tasks, and for turn_ms where another waits. Then it is that of the queue that has
-- waited longest for one. Returns the queue; '' while none had a turn.
local TURN, now, busy, first, longest = P .. 'turn:' .. ARGV[3], now_ms(), false, nil, nil
local holder, since = redis.call('HGET', TURN, 'queue') or '', tonumber(redis.call('HGET', TURN, 'since') or 0)
for i = 5, #ARGV do
  enter(ARGV[i])
  local waits, waited = redis.call('EXISTS', QUEUED, QUARANTINED) > 0, 'waits:' .. QUEUE
  if QUEUE == holder then
    busy = waits or redis.call('EXISTS', LEASED) > 0
  elseif waits then
    redis.call('HSETNX', TURN, waited, now)
    local began = tonumber(redis.call('HGET', TURN, waited))
    if not longest or began < longest then first, longest = QUEUE, began end
  else
    redis.call('HDEL', TURN, waited)
  end
end
if first and (not busy or now - since >= tonumber(ARGV[4])) then
  redis.call('HSET', TURN, 'queue', first, 'since', now)
  redis.call('HDEL', TURN, 'waits:' .. first)
  return first
end
return holder
