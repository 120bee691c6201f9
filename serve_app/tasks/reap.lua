#!lua flags=allow-oom
-- Takes back tasks whose lease ran out: their dispatcher is gone, and where work had begun, perhaps the worker with it.
-- limit, then the retry limits: max_crashes max_losses max_interruptions retention_ms details queue_ms, then queue ...
-- Returns how many.
local now, max, count = now_ms(), retry_limits(4), 0
for i = 10, #ARGV do
  enter(ARGV[i])
  local ids = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))
  for _, id in ipairs(ids) do
    local h = redis.call('HMGET', task_key(id), 'attempt', 'begun')
    requeue(id, { crash = h[1] == h[2] }, max)
  end
  if #ids > 0 then redis.call('HINCRBY', STATS, 'reaped', #ids) end
  count = count + #ids
end
return count
