#!lua flags=allow-oom
-- Counts the deliveries that wait or are being sent. Answers {deliveries, oldest_ms}: the age of the oldest.
local oldest = redis.call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
return cjson.encode({
  deliveries = redis.call('ZCARD', PENDING),
  oldest_ms = oldest[2] and math.max(0, now_ms() - tonumber(oldest[2])) or 0,
})
