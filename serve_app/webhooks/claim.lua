-- Claims deliveries that are due, fairly among receivers.
-- n per_receiver claim_ms max_age_ms most_attempts trips_after lost_entry aged_entry
-- Returns {id, claim, attempt} each. What comes of a claim is recorded before it runs out, or it counts as lost.
local n, per_receiver, claim_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local max_age, most_attempts, trips_after = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local SCANNED, AGED_AT_ONCE = 200, 100
local now, claimed = now_ms(), {}

local function take_back_lost(receiver)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sending_key(receiver), '-inf', now)) do
    redis.call('ZREM', sending_key(receiver), id)
    note_attempt(id, ARGV[9])
    if tonumber(redis.call('HGET', delivery_key(id), 'attempts')) >= most_attempts then
      fail(id, receiver, now)
    else
      redis.call('HSET', delivery_key(id), 'state', 'waiting', 'next', now)
      redis.call('ZADD', waiting_key(receiver), now, id)
    end
  end
end

-- Of a receiver that is never back, most deliveries get no try of their own.
local function give_up_old(receiver)
  if tonumber(redis.call('HGET', receiver_key(receiver), 'failures') or 0) < trips_after then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(receiver), '-inf', now, 'LIMIT', 0, AGED_AT_ONCE)) do
    if tonumber(redis.call('HGET', delivery_key(id), 'since')) + max_age <= now then
      note_attempt(id, ARGV[10])
      fail(id, receiver, now)
    end
  end
end

for _, receiver in ipairs(redis.call('ZRANGEBYSCORE', OUTBOX, '-inf', now, 'LIMIT', 0, SCANNED)) do
  if #claimed >= n then break end
  take_back_lost(receiver)
  give_up_old(receiver)
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
end
return claimed
