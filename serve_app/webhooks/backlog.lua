#!lua flags=allow-oom
-- How many deliveries are on their way, and for how long the oldest of them, ms.
local oldest = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
return { redis.call('ZCARD', PENDING), oldest[2] and math.max(0, now_ms() - tonumber(oldest[2])) or 0 }
