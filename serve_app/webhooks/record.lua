#!lua flags=allow-oom
-- Records an attempt at a claimed delivery. Takes {id, claim, outcome, wait_ms, entry, health, is_quick, circuit}.
-- outcome: delivered | retry | failed. health of the destination: up | down | unknown, without a call.
-- Answers {outcome}: recorded; claim_lost, without a change, if another sender has or had the delivery.
local a, now = cjson.decode(ARGV[3]), now_ms()
local key = delivery_key(a.id)
local h = redis.call('HMGET', key, 'destination', 'claim', 'state', 'since')
local destination = h[1]
if tonumber(h[2]) ~= a.claim or h[3] ~= 'sending' then return answer('claim_lost') end

note_attempt(a.id, a.entry)
end_sending(destination, a.id)
if a.outcome == 'delivered' then
  redis.call('HSET', key, 'state', 'delivered', 'finished', now)
  redis.call('HDEL', key, 'again')
  redis.call('ZREM', PENDING, a.id)
  redis.call('HINCRBY', DELIVERED, 'delivered', 1)
  observe_in(DELIVERED, 'delay', now - tonumber(h[4]))
elseif a.outcome == 'retry' then
  wait_until(destination, a.id, now + a.wait_ms)
  redis.call('HINCRBY', DELIVERED, 'put_off', 1)
else
  fail(a.id, destination, now)
end

local health, is_down = destination_key(destination), a.health == 'down'
if a.health == 'up' then
  redis.call('HDEL', health, 'failures', 'open_until', 'times_opened')
elseif is_down then
  local failures = redis.call('HINCRBY', health, 'failures', 1)
  local open_until = tonumber(redis.call('HGET', health, 'open_until') or 0)
  -- Calls at the same time fail together: that is one reason to open the circuit, not many.
  if failures >= a.circuit.failure_threshold and open_until <= now then
    local times = redis.call('HINCRBY', health, 'times_opened', 1)
    local open_ms = math.min(a.circuit.open_ms * 2 ^ (times - 1), a.circuit.max_open_ms)
    redis.call('HSET', health, 'open_until', now + open_ms)
  end
end
adapt(destination, a.is_quick, is_down, a.circuit)
reschedule(destination, a.circuit, now)
-- Other deliveries of the destination may wait for the end of this one.
if tonumber(redis.call('ZSCORE', OUTBOX, destination) or now + 1) <= now then redis.call('PUBLISH', OUTBOX, '1') end
return answer('recorded')
