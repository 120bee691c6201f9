-- Has a delivery sent again from its first try on, now, whatever came of it and whatever is known of its destination. id
-- Returns 1, 2 when it is being sent at this moment and begins anew should that fail, 0 when there is none.
local id, now = ARGV[3], now_ms()
local h = redis.call('HMGET', delivery_key(id), 'destination', 'state')
if not h[1] then return 0 end
if h[2] == 'sending' then
  redis.call('HSET', delivery_key(id), 'again', 1)
  return 2
end
redis.call('DEL', destination_key(h[1]))
announce(id, h[1], now)
return 1
