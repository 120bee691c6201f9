-- What is decided per destination: how many calls at a time, and when the next one is due.
-- Between outbox.lua and the scripts that claim deliveries and record how they went.
local MOST_ATTEMPTS_LISTED = 50
local DELIVERED = P .. 'delivered'

-- How many more calls a destination may get right now, and until when it gets none, 0 for no such time.
-- One that failed too often in a row is left alone for a while; then a single call finds out whether it is back.
local function room_of(destination, per_destination, failure_threshold, now)
  local h = redis.call('HMGET', destination_key(destination), 'failures', 'open_until', 'concurrency')
  local open_until = tonumber(h[2] or 0)
  if open_until > now then return 0, open_until end
  local most = tonumber(h[1] or 0) >= failure_threshold and 1 or math.floor(tonumber(h[3] or per_destination))
  return most - redis.call('ZCARD', sending_key(destination)), 0
end

-- Notes when somebody has to look at the destination next: for work that is due, or for a sender that was lost.
local function reschedule(destination, per_destination, failure_threshold, now)
  local first = redis.call('ZRANGE', waiting_key(destination), 0, 0, 'WITHSCORES')
  local first_claim = redis.call('ZRANGE', sending_key(destination), 0, 0, 'WITHSCORES')
  local room, open_until = room_of(destination, per_destination, failure_threshold, now)
  local at = tonumber(first_claim[2])
  if first[2] and (room > 0 or open_until > 0) then
    local due = math.max(tonumber(first[2]), open_until)
    at = at and math.min(at, due) or due
  end
  if at then redis.call('ZADD', OUTBOX, at, destination) else redis.call('ZREM', OUTBOX, destination) end
end

-- How many calls a destination gets at a time follows its answers: one more after a whole round of quick deliveries, as
-- long as others wait, and half after each failure. What is never busy keeps nothing.
local function adapt(destination, quick, down, per_destination, most)
  local key = destination_key(destination)
  local limit = tonumber(redis.call('HGET', key, 'concurrency') or per_destination)
  if down then
    redis.call('HSET', key, 'concurrency', math.max(1, limit / 2))
  elseif quick and redis.call('EXISTS', waiting_key(destination)) == 1 then
    redis.call('HSET', key, 'concurrency', math.max(limit, math.min(limit + 1 / limit, most)))
  else
    return
  end
  redis.call('PEXPIRE', key, 86400000)
end

local function note_attempt(id, entry)
  redis.call('RPUSH', attempts_key(id), entry)
  redis.call('LTRIM', attempts_key(id), -MOST_ATTEMPTS_LISTED, -1)
end

local function fail(id, destination, now)
  redis.call('ZREM', waiting_key(destination), id)
  -- Somebody asked for a replay while the last attempt was on its way.
  if redis.call('HDEL', delivery_key(id), 'again') == 1 then return announce(id, destination, now) end
  redis.call('HSET', delivery_key(id), 'state', 'failed', 'finished', now)
  redis.call('HDEL', delivery_key(id), 'next')
  redis.call('ZADD', UNDELIVERED, now, id)
  redis.call('ZREM', PENDING, id)
  redis.call('HINCRBY', DELIVERED, 'failed', 1)
end
