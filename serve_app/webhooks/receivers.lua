-- What is decided per receiver: how many calls at a time, and when the next one is due.
-- Between outbox.lua and the scripts that claim deliveries and record how they went.
local MOST_ATTEMPTS_LISTED = 50
local DELIVERED = P .. 'delivered'

-- How many more calls a receiver may get right now, and until when it gets none, 0 for no such time.
-- One that failed too often in a row is left alone for a while; then a single call finds out whether it is back.
local function room_of(receiver, per_receiver, trips_after, now)
  local h = redis.call('HMGET', receiver_key(receiver), 'failures', 'shut_until')
  local shut_until = tonumber(h[2] or 0)
  if shut_until > now then return 0, shut_until end
  local most = tonumber(h[1] or 0) >= trips_after and 1 or per_receiver
  return most - redis.call('ZCARD', sending_key(receiver)), 0
end

-- Notes when somebody has to look at the receiver next: for work that is due, or for a sender that was lost.
local function reschedule(receiver, per_receiver, trips_after, now)
  local first = redis.call('ZRANGE', waiting_key(receiver), 0, 0, 'WITHSCORES')
  local claimed = redis.call('ZRANGE', sending_key(receiver), 0, 0, 'WITHSCORES')
  local room, shut_until = room_of(receiver, per_receiver, trips_after, now)
  local at = tonumber(claimed[2])
  if first[2] and (room > 0 or shut_until > 0) then
    local due = math.max(tonumber(first[2]), shut_until)
    at = at and math.min(at, due) or due
  end
  if at then redis.call('ZADD', OUTBOX, at, receiver) else redis.call('ZREM', OUTBOX, receiver) end
end

local function note_attempt(id, entry)
  redis.call('RPUSH', attempts_key(id), entry)
  redis.call('LTRIM', attempts_key(id), -MOST_ATTEMPTS_LISTED, -1)
end

local function fail(id, receiver, now)
  redis.call('ZREM', waiting_key(receiver), id)
  -- Somebody asked for a replay while the last attempt was on its way.
  if redis.call('HDEL', delivery_key(id), 'again') == 1 then return announce(id, receiver, now) end
  redis.call('HSET', delivery_key(id), 'state', 'failed', 'finished', now)
  redis.call('HDEL', delivery_key(id), 'next')
  redis.call('ZADD', UNDELIVERED, now, id)
  redis.call('ZREM', PENDING, id)
  redis.call('HINCRBY', DELIVERED, 'failed', 1)
end
