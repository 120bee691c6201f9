#!lua flags=allow-oom
-- Publishes an attempt's outcome, once.
-- Arguments: id, attempt, status, retention_ms, device_us, fields of the task's hash
-- Answers `published`; `repeated` if this attempt had published already; `refused` for a stale attempt, or a task that
-- ended otherwise.
-- A result still counts after the reaper took the lease back, until the task is leased again: the attempt only grows
-- with a lease, so no other dispatcher works on it.
local a = cjson.decode(ARGV[3])
local key = task_key(a.id)
local h = redis.call('HMGET', key, 'attempt', 'status', 'published_by', 'project', 'endpoint', 'work')
if h[1] ~= tostring(a.attempt) then
  redis.call('HINCRBY', STATS, 'refused', 1)
  return answer('refused')
end
if TERMINAL[h[2]] then return answer(h[3] == h[1] and 'repeated' or 'refused') end
redis.call('HSET', key, 'published_by', a.attempt, unpack(flatten(a.fields)))
finish(a.id, a.status, a.retention_ms)
if a.device_us > 0 then
  redis.call('HINCRBY', P .. 'device:' .. QUEUE, h[5], a.device_us)
  redis.call('ZINCRBY', P .. 'device', a.device_us, h[4])
  local counts = { device_us = a.device_us }
  if h[6] then
    -- Recent device time per work: a task counts 2 % less than the one after it.
    local sums = redis.call('HMGET', DEMAND, 'done', 'device_us')
    if tonumber(sums[1] or 0) > 0 then
      counts.error_us = math.abs(h[6] * sums[2] / sums[1] - a.device_us)
      counts.predicted_us = a.device_us
    end
    redis.call('HSET', DEMAND, 'done', score(0.98 * (sums[1] or 0) + h[6]),
      'device_us', score(0.98 * (sums[2] or 0) + a.device_us))
  end
  count_recently(counts)
end
return answer('published')
