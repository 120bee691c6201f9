-- The webhook outbox, whose structures webhooks/outbox.py names: in front of every script that adds to it or takes from it.

local function delivery_key(id) return P .. 'delivery:' .. id end
local function attempts_key(id) return P .. 'attempts:' .. id end
local function waiting_key(receiver) return P .. 'outbox:' .. receiver end
local function sending_key(receiver) return P .. 'sending:' .. receiver end
local function calls_key(receiver) return P .. 'calls:' .. receiver:match(' (%S+)$') end
local DELIVERIES, UNDELIVERED, PENDING = P .. 'deliveries', P .. 'undelivered', P .. 'pending'

-- Has the delivery sent as soon as its receiver may be called.
local function announce(id, receiver, now)
  local key = delivery_key(id)
  redis.call('HSET', key, 'state', 'waiting', 'receiver', receiver, 'attempts', 0, 'since', now, 'next', now)
  redis.call('HSETNX', key, 'created', now)
  redis.call('HDEL', key, 'finished')
  redis.call('ZADD', waiting_key(receiver), now, id)
  redis.call('ZADD', OUTBOX, 'LT', now, receiver)
  redis.call('ZADD', DELIVERIES, 'NX', now, id)
  redis.call('ZADD', PENDING, now, id)
  redis.call('ZREM', UNDELIVERED, id)
  redis.call('PUBLISH', OUTBOX, '1')
end

local function receiver_key(receiver) return P .. 'receiver:' .. receiver end

-- A claim begins, or goes on if it still counts.
local function note_sending(receiver, id, until_ms, only_if_there)
  local calls = calls_key(receiver)
  for _, key in ipairs({ sending_key(receiver), calls }) do
    if only_if_there then
      redis.call('ZADD', key, 'XX', until_ms, id)
    else
      redis.call('ZADD', key, until_ms, id)
    end
  end
end

local function end_sending(receiver, id)
  local calls = calls_key(receiver)
  redis.call('ZREM', sending_key(receiver), id)
  if calls then redis.call('ZREM', calls, id) end
end

local function is_on_its_way(id)
  local state = redis.call('HGET', delivery_key(id), 'state')
  return state == 'waiting' or state == 'sending'
end

local function forget_delivery(id)
  local receiver = redis.call('HGET', delivery_key(id), 'receiver')
  if not receiver then return end
  redis.call('ZREM', waiting_key(receiver), id)
  end_sending(receiver, id)
  redis.call('DEL', delivery_key(id), attempts_key(id))
  redis.call('ZREM', DELIVERIES, id)
  redis.call('ZREM', PENDING, id)
  redis.call('ZREM', UNDELIVERED, id)
end
