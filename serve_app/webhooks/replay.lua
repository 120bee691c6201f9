-- Restarts a delivery now, from its first attempt, in any state of it and of its destination. Takes {id}.
-- Answers {outcome}: due; after_attempt, if it is being sent and starts again should that fail; not_found.
local a = cjson.decode(ARGV[3])
local h = redis.call('HMGET', delivery_key(a.id), 'destination', 'state')
if not h[1] then return answer('not_found') end
if h[2] == 'sending' then
  redis.call('HSET', delivery_key(a.id), 'again', 1)
  return answer('after_attempt')
end
redis.call('DEL', destination_key(h[1]))
announce(a.id, h[1], now_ms())
return answer('due')
