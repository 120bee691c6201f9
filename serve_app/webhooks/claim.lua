#!lua flags=allow-oom
-- Claims deliveries that are due, fairly among destinations, and no more for one organization than it may have.
-- call n per_destination per_organization claim_ms max_age_ms most_attempts failure_threshold lost_entry aged_entry
-- Returns {id, claim, attempt} each. What comes of a claim is recorded before it runs out, or it counts as lost.
-- The same call gets the same again.
local reply = get_reply(ARGV[3])
if reply then return reply end
local n, per_destination, per_organization = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local claim_ms, max_age, most_attempts, failure_threshold =
  tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local MAX_DESTINATIONS, SCAN_LIMIT, BATCH, EXPIRY_LIMIT, PUT_OFF_MS = 200, 2000, 50, 1000, 500
local now, claims = now_ms(), {}

local function requeue_lost(destination)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sending_key(destination), '-inf', now)) do
    end_sending(destination, id)
    note_attempt(id, ARGV[11])
    if tonumber(redis.call('HGET', delivery_key(id), 'attempts')) >= most_attempts then
      fail(id, destination, now)
    else
      redis.call('HSET', delivery_key(id), 'state', 'waiting', 'next', now)
      redis.call('ZADD', waiting_key(destination), now, id)
    end
  end
end

-- Of a destination that is never back, most deliveries get no try of their own. Returns whether there may be more.
local function fail_expired(destination)
  if tonumber(redis.call('HGET', destination_key(destination), 'failures') or 0) < failure_threshold then return false end
  local count = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, EXPIRY_LIMIT)) do
    if tonumber(redis.call('HGET', delivery_key(id), 'since')) + max_age <= now then
      note_attempt(id, ARGV[12])
      fail(id, destination, now)
      count = count + 1
    end
  end
  return count == EXPIRY_LIMIT
end

-- How many more calls may be made for the organization of a destination. Claims that ran out count no more.
local rooms = {}
local function room_of_organization(destination)
  local calls = calls_key(destination)
  if not rooms[calls] then
    redis.call('ZREMRANGEBYSCORE', calls, '-inf', now)
    rooms[calls] = per_organization - redis.call('ZCARD', calls)
  end
  return rooms[calls]
end

local function claim(destination, more)
  requeue_lost(destination)
  local more_old = fail_expired(destination)
  local room = math.min(room_of(destination, per_destination, failure_threshold, now), more)
  if room > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, room)) do
      redis.call('ZREM', waiting_key(destination), id)
      note_sending(destination, id, now + claim_ms)
      redis.call('HSET', delivery_key(id), 'state', 'sending')
      redis.call('HDEL', delivery_key(id), 'next')
      local attempt = redis.call('HINCRBY', delivery_key(id), 'attempts', 1)
      claims[#claims + 1] = { id, redis.call('HINCRBY', delivery_key(id), 'claim', 1), attempt }
    end
  end
  reschedule(destination, per_destination, failure_threshold, now)
  if more_old then
    redis.call('ZADD', OUTBOX, now, destination)
    redis.call('PUBLISH', OUTBOX, '1')
  end
end

local scanned, visited, seen, due, is_new = 0, 0, {}, nil, nil
local function may_go_on() return #claims < n and visited < MAX_DESTINATIONS and scanned < SCAN_LIMIT end
repeat
  due, is_new = redis.call('ZRANGEBYSCORE', OUTBOX, '-inf', now, 'LIMIT', 0, BATCH), false
  for _, destination in ipairs(due) do
    if not may_go_on() then break end
    local room = room_of_organization(destination)
    if room <= 0 then
      -- Behind those of others that are due; it is soon looked at again.
      redis.call('ZADD', OUTBOX, now + PUT_OFF_MS, destination)
      scanned, is_new = scanned + 1, true
    elseif not seen[destination] then
      seen[destination], visited, is_new = true, visited + 1, true
      local before = #claims
      claim(destination, math.min(room, n - before))
      if calls_key(destination) then rooms[calls_key(destination)] = room - (#claims - before) end
    end
  end
until #due < BATCH or not is_new or not may_go_on()
if #due == BATCH and #claims < n then redis.call('PUBLISH', OUTBOX, '1') end
keep_reply(ARGV[3], claims, claim_ms)
return claims
