-- The webhook outbox; webhooks/outbox.py documents its keys. Included by the scripts that change it.

local function delivery_key(id) return P .. 'delivery:' .. id end
local function attempts_key(id) return P .. 'attempts:' .. id end
local function waiting_key(destination) return P .. 'outbox:' .. destination end
local function sending_key(destination) return P .. 'sending:' .. destination end
local function calls_key(organization) return P .. 'calls:' .. organization end

-- Decodes the id of a destination (`WebhookDestination`). 0.2 wrote "origin organization"; that goes after 0.3.
local function organization_of(destination)
  if destination:sub(1, 1) == '[' then return cjson.decode(destination)[2] end
  return destination:match(' (%S+)$')
end

local DELIVERIES, UNDELIVERED, PENDING = P .. 'deliveries', P .. 'undelivered', P .. 'pending'

-- Makes the delivery due now.
local function announce(id, destination, now)
  local key = delivery_key(id)
  redis.call('HSET', key, 'state', 'waiting', 'destination', destination, 'attempts', 0, 'since', now, 'next', now)
  redis.call('HSETNX', key, 'created', now)
  redis.call('HDEL', key, 'finished')
  redis.call('ZADD', waiting_key(destination), now, id)
  redis.call('ZADD', OUTBOX, 'LT', now, destination)
  redis.call('ZADD', DELIVERIES, 'NX', now, id)
  redis.call('ZADD', PENDING, now, id)
  redis.call('ZREM', UNDELIVERED, id)
  redis.call('PUBLISH', OUTBOX, '1')
end

local function destination_key(destination) return P .. 'destination:' .. destination end

-- Records a claim until `until_ms`; with `only_if_there`, only prolongs one that has not expired.
local function note_sending(destination, id, until_ms, only_if_there)
  for _, key in ipairs({ sending_key(destination), calls_key(organization_of(destination)) }) do
    if only_if_there then
      redis.call('ZADD', key, 'XX', until_ms, id)
    else
      redis.call('ZADD', key, until_ms, id)
    end
  end
end

local function end_sending(destination, id)
  redis.call('ZREM', sending_key(destination), id)
  redis.call('ZREM', calls_key(organization_of(destination)), id)
end

local function is_on_its_way(id)
  local state = redis.call('HGET', delivery_key(id), 'state')
  return state == 'waiting' or state == 'sending'
end

local function forget_delivery(id)
  local destination = redis.call('HGET', delivery_key(id), 'destination')
  if not destination then return end
  redis.call('ZREM', waiting_key(destination), id)
  end_sending(destination, id)
  redis.call('DEL', delivery_key(id), attempts_key(id))
  redis.call('ZREM', DELIVERIES, id)
  redis.call('ZREM', PENDING, id)
  redis.call('ZREM', UNDELIVERED, id)
end
