#!lua flags=allow-oom
-- Claims deliveries that are due, fairly among destinations, and no more for one organization than it may have.
-- call n per_destination per_organization claim_ms max_age_ms most_attempts failure_threshold lost_entry aged_entry
-- Returns {id, claim, attempt} each. What comes of a claim is recorded before it runs out, or it counts as lost.
-- The same call gets the same again.
local handed_out = replied(ARGV[3])
if handed_out then return handed_out end
local n, per_destination, per_organization = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local claim_ms, max_age, most_attempts, failure_threshold =
  tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local LOOKED_AT, SCANNED, AGED_AT_ONCE, PUT_OFF_MS = 200, 2000, 1000, 500
local now, claimed = now_ms(), {}

local function take_back_lost(destination)
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
local function give_up_old(destination)
  if tonumber(redis.call('HGET', destination_key(destination), 'failures') or 0) < failure_threshold then return false end
  local given_up = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, AGED_AT_ONCE)) do
    if tonumber(redis.call('HGET', delivery_key(id), 'since')) + max_age <= now then
      note_attempt(id, ARGV[12])
      fail(id, destination, now)
      given_up = given_up + 1
    end
  end
  return given_up == AGED_AT_ONCE
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
  take_back_lost(destination)
  local more_old = give_up_old(destination)
  local room = math.min(room_of(destination, per_destination, failure_threshold, now), more)
  if room > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, room)) do
      redis.call('ZREM', waiting_key(destination), id)
      note_sending(destination, id, now + claim_ms)
      redis.call('HSET', delivery_key(id), 'state', 'sending')
      redis.call('HDEL', delivery_key(id), 'next')
      local attempt = redis.call('HINCRBY', delivery_key(id), 'attempts', 1)
      claimed[#claimed + 1] = { id, redis.call('HINCRBY', delivery_key(id), 'claim', 1), attempt }
    end
  end
  reschedule(destination, per_destination, failure_threshold, now)
  if more_old then
    redis.call('ZADD', OUTBOX, now, destination)
    redis.call('PUBLISH', OUTBOX, '1')
  end
end

local due, looked_at = redis.call('ZRANGEBYSCORE', OUTBOX, '-inf', now, 'LIMIT', 0, SCANNED), 0
for _, destination in ipairs(due) do
  if #claimed >= n or looked_at >= LOOKED_AT then break end
  local room = room_of_organization(destination)
  if room > 0 then
    looked_at = looked_at + 1
    local before = #claimed
    claim(destination, math.min(room, n - before))
    if calls_key(destination) then rooms[calls_key(destination)] = room - (#claimed - before) end
  else
    -- Behind those of others that are due; it is soon looked at again.
    redis.call('ZADD', OUTBOX, now + PUT_OFF_MS, destination)
  end
end
if #due == SCANNED and #claimed < n then redis.call('PUBLISH', OUTBOX, '1') end
keep_reply(ARGV[3], claimed, claim_ms)
return claimed
