#!lua flags=allow-oom
-- How many deliveries are on their way, and for how long the oldest of them, ms.
-- In a rolling upgrade, what a sender of the release before ended stays in the index, of which it knew nothing.
local LOOKED_AT = 100
for _, id in ipairs(redis.call('ZRANGE', PENDING, 0, LOOKED_AT - 1)) do
  if is_on_its_way(id) then break end
  redis.call('ZREM', PENDING, id)
end
local oldest = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
return { redis.call('ZCARD', PENDING), oldest[2] and math.max(0, now_ms() - tonumber(oldest[2])) or 0 }
