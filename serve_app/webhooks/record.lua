#!lua flags=allow-oom
-- Records how a claimed delivery went.
-- id claim outcome retry_ms entry down per_destination failure_threshold open_ms max_open_ms quick per_organization
-- outcome: delivered | retry | failed. down: 1 when the destination seems to be down, 0 when it answered, else empty.
-- Returns 1, or 0 for a claim that ran out: somebody else has the delivery, or had it.
local id, claim, outcome, now = ARGV[3], ARGV[4], ARGV[5], now_ms()
local per_destination, failure_threshold = tonumber(ARGV[9]), tonumber(ARGV[10])
local key = delivery_key(id)
local h = redis.call('HMGET', key, 'destination', 'claim', 'state', 'since')
local destination = h[1]
if h[2] ~= claim or h[3] ~= 'sending' then return 0 end

note_attempt(id, ARGV[7])
end_sending(destination, id)
if outcome == 'delivered' then
  redis.call('HSET', key, 'state', 'delivered', 'finished', now)
  redis.call('HDEL', key, 'again')
  redis.call('ZREM', PENDING, id)
  redis.call('HINCRBY', DELIVERED, 'delivered', 1)
  observe_in(DELIVERED, 'delay', now - tonumber(h[4]))
elseif outcome == 'retry' then
  redis.call('HSET', key, 'state', 'waiting', 'next', now + tonumber(ARGV[6]))
  redis.call('ZADD', waiting_key(destination), now + tonumber(ARGV[6]), id)
  redis.call('HINCRBY', DELIVERED, 'put_off', 1)
else
  fail(id, destination, now)
end

local health = destination_key(destination)
if ARGV[8] == '0' then
  redis.call('HDEL', health, 'failures', 'open_until', 'times_opened')
elseif ARGV[8] == '1' then
  local failures = redis.call('HINCRBY', health, 'failures', 1)
  local open_until = tonumber(redis.call('HGET', health, 'open_until') or 0)
  -- Calls that were on their way together fail together: that is one reason to shut it, not many.
  if failures >= failure_threshold and open_until <= now then
    local times = redis.call('HINCRBY', health, 'times_opened', 1)
    redis.call('HSET', health, 'open_until', now + math.min(tonumber(ARGV[11]) * 2 ^ (times - 1), tonumber(ARGV[12])))
  end
end
adapt(destination, ARGV[13] == '1', ARGV[8] == '1', per_destination, tonumber(ARGV[14]))
reschedule(destination, per_destination, failure_threshold, now)
-- Others of the destination may have waited for this one to end.
if tonumber(redis.call('ZSCORE', OUTBOX, destination) or now + 1) <= now then redis.call('PUBLISH', OUTBOX, '1') end
return 1
