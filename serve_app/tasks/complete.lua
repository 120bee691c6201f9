#!lua flags=allow-oom
-- Publishes an attempt's outcome, once.
-- id attempt status retention_ms device_us, then field value ...
-- Returns 1 published, 2 this attempt had published already, 0 refused: stale attempt, or ended otherwise.
-- A result that comes after the reaper took the lease back, but before anyone else leased the task, still counts:
-- the attempt only grows at lease, so nobody else can be working on it.
local id, key = ARGV[3], task_key(ARGV[3])
local h = redis.call('HMGET', key, 'attempt', 'status', 'published_by', 'project', 'endpoint', 'work')
if h[1] ~= ARGV[4] then
  redis.call('HINCRBY', STATS, 'refused', 1)
  return 0
end
if TERMINAL[h[2]] then return h[3] == ARGV[4] and 2 or 0 end
redis.call('HSET', key, 'published_by', ARGV[4], unpack(ARGV, 8))
finish(id, ARGV[5], tonumber(ARGV[6]))
local device_us = tonumber(ARGV[7])
if device_us > 0 then
  redis.call('HINCRBY', P .. 'device:' .. QUEUE, h[5], device_us)
  redis.call('ZINCRBY', P .. 'device', device_us, h[4])
  local counts = { device_us = device_us }
  if h[6] then
    -- What work takes of late: an older task counts 2 % less than the one after it.
    local sums = redis.call('HMGET', DEMAND, 'done', 'device_us')
    if tonumber(sums[1] or 0) > 0 then
      counts.error_us = math.abs(h[6] * sums[2] / sums[1] - device_us)
      counts.predicted_us = device_us
    end
    redis.call('HSET', DEMAND, 'done', score(0.98 * (sums[1] or 0) + h[6]),
      'device_us', score(0.98 * (sums[2] or 0) + device_us))
  end
  count_recently(counts)
end
return 1
