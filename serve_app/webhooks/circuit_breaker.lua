-- The circuit breaker of a destination: its calls at a time, and the time of the next one.
-- Included after outbox.lua by the scripts that claim deliveries and record attempts; `circuit` is a CircuitPolicy (webhooks/policy.py).
local MAX_ATTEMPTS_LISTED = 50
local DELIVERED = P .. 'delivered'

-- Returns the further calls that a destination may get now, and the time until which its circuit is open, 0 if closed.
-- Once that time is over, a single call finds out whether the destination is back.
local function capacity_of(destination, circuit, now)
  local h = redis.call('HMGET', destination_key(destination), 'failures', 'open_until', 'concurrency')
  local open_until = tonumber(h[2] or 0)
  if open_until > now then return 0, open_until end
  local is_trial = tonumber(h[1] or 0) >= circuit.failure_threshold
  local limit = is_trial and 1 or math.floor(tonumber(h[3] or circuit.per_destination))
  return limit - redis.call('ZCARD', sending_key(destination)), 0
end

-- Schedules the next check of the destination: for a delivery that is due, or for a claim that expires.
local function reschedule(destination, circuit, now)
  local first = redis.call('ZRANGE', waiting_key(destination), 0, 0, 'WITHSCORES')
  local first_claim = redis.call('ZRANGE', sending_key(destination), 0, 0, 'WITHSCORES')
  local capacity, open_until = capacity_of(destination, circuit, now)
  local at = tonumber(first_claim[2])
  if first[2] and (capacity > 0 or open_until > 0) then
    local due = math.max(tonumber(first[2]), open_until)
    at = at and math.min(at, due) or due
  end
  if at then redis.call('ZADD', OUTBOX, at, destination) else redis.call('ZREM', OUTBOX, destination) end
end

-- Adapts the number of calls at a time to the answers: one more after a whole round of quick deliveries, as long as
-- others wait, and half after each failure. A destination that is never busy has no record.
local function adapt(destination, is_quick, is_down, circuit)
  local key = destination_key(destination)
  local limit = tonumber(redis.call('HGET', key, 'concurrency') or circuit.per_destination)
  if is_down then
    redis.call('HSET', key, 'concurrency', math.max(1, limit / 2))
  elseif is_quick and redis.call('EXISTS', waiting_key(destination)) == 1 then
    redis.call('HSET', key, 'concurrency', math.max(limit, math.min(limit + 1 / limit, circuit.per_organization)))
  else
    return
  end
  redis.call('PEXPIRE', key, 86400000)
end

local function note_attempt(id, entry)
  redis.call('RPUSH', attempts_key(id), entry)
  redis.call('LTRIM', attempts_key(id), -MAX_ATTEMPTS_LISTED, -1)
end

local function wait_until(destination, id, at)
  redis.call('HSET', delivery_key(id), 'state', 'waiting', 'next', at)
  redis.call('ZADD', waiting_key(destination), at, id)
end

local function fail(id, destination, now)
  redis.call('ZREM', waiting_key(destination), id)
  -- A replay was requested during the last attempt.
  if redis.call('HDEL', delivery_key(id), 'again') == 1 then return announce(id, destination, now) end
  redis.call('HSET', delivery_key(id), 'state', 'failed', 'finished', now)
  redis.call('HDEL', delivery_key(id), 'next')
  redis.call('ZADD', UNDELIVERED, now, id)
  redis.call('ZREM', PENDING, id)
  redis.call('HINCRBY', DELIVERED, 'failed', 1)
end
