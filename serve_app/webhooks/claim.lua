#!lua flags=allow-oom
-- Claims deliveries that are due, fairly among receivers.
-- call n per_receiver claim_ms max_age_ms most_attempts trips_after lost_entry aged_entry
-- Returns {id, claim, attempt} each. What comes of a claim is recorded before it runs out, or it counts as lost.
-- The same call gets the same again.
local handed_out = replied(ARGV[3])
if handed_out then return handed_out end
local n, per_receiver, claim_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_age, most_attempts, trips_after = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local SCANNED, AGED_AT_ONCE = 200, 1000
local now, claimed = now_ms(), {}

local function take_back_lost(receiver)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sending_key(receiver), '-inf', now)) do
    redis.call('ZREM', sending_key(receiver), id)
    note_attempt(id, ARGV[10])
    if tonumber(redis.call('HGET', delivery_key(id), 'attempts')) >= most_attempts then
      fail(id, receiver, now)
    else
      redis.call('HSET', delivery_key(id), 'state', 'waiting', 'next', now)
      redis.call('ZADD', waiting_key(receiver), now, id)
    end
  end
end

-- Of a receiver that is never back, most deliveries get no try of their own. Returns whether there may be more.
local function give_up_old(receiver)
  if tonumber(redis.call('HGET', receiver_key(receiver), 'failures') or 0) < trips_after then return false end
  local given_up = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(receiver), '-inf', now, 'LIMIT', 0, AGED_AT_ONCE)) do
    if tonumber(redis.call('HGET', delivery_key(id), 'since')) + max_age <= now then
      note_attempt(id, ARGV[11])
      fail(id, receiver, now)
      given_up = given_up + 1
    end
  end
  return given_up == AGED_AT_ONCE
end

for _, receiver in ipairs(redis.call('ZRANGEBYSCORE', OUTBOX, '-inf', now, 'LIMIT', 0, SCANNED)) do
  if #claimed >= n then break end
  take_back_lost(receiver)
  local more_old = give_up_old(receiver)
  local room = math.min(room_of(receiver, per_receiver, trips_after, now), n - #claimed)
  if room > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(receiver), '-inf', now, 'LIMIT', 0, room)) do
      redis.call('ZREM', waiting_key(receiver), id)
      redis.call('ZADD', sending_key(receiver), now + claim_ms, id)
      redis.call('HSET', delivery_key(id), 'state', 'sending')
      redis.call('HDEL', delivery_key(id), 'next')
      local attempt = redis.call('HINCRBY', delivery_key(id), 'attempts', 1)
      claimed[#claimed + 1] = { id, redis.call('HINCRBY', delivery_key(id), 'claim', 1), attempt }
    end
  end
  reschedule(receiver, per_receiver, trips_after, now)
  if more_old then
    redis.call('ZADD', OUTBOX, now, receiver)
    redis.call('PUBLISH', OUTBOX, '1')
  end
end
keep_reply(ARGV[3], claimed, claim_ms)
return claimed
