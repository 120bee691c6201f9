-- Rate limit of a key: generic cell rate algorithm. Included by `consume_rate_limit` and the scripts that admit tasks.

-- Checks a key that may send one request every `every_ms`, and `burst` at once. Returns the ms to wait, the requests that
-- it may send after this one, and the time at which the next is due, for `record_rate`.
local function check_rate(key_id, every_ms, burst, now)
  local due = math.max(now, tonumber(redis.call('GET', P .. 'rate:' .. key_id) or 0))
  local early = due + every_ms - burst * every_ms - now
  early = early - 0.01  -- sums of fractions are off by less
  return math.max(0, math.ceil(early)), math.max(0, math.floor(-early / every_ms)), due + every_ms
end

local function record_rate(key_id, due, now)
  redis.call('SET', P .. 'rate:' .. key_id, score(due), 'PX', math.max(1, math.ceil(due - now)))
end
