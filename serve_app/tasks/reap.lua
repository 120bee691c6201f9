#!lua flags=allow-oom
-- Requeues tasks whose lease expired: their dispatcher is gone, and if work had begun, perhaps the worker with it.
-- Arguments: queues, limit of each, retry (retry_and_end.lua)
-- Answers the `count`.
local a, now, count = cjson.decode(ARGV[3]), now_ms(), 0
for _, queue in ipairs(a.queues) do
  enter(queue)
  local ids = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, a.limit)
  for _, id in ipairs(ids) do
    local h = redis.call('HMGET', task_key(id), 'attempt', 'begun')
    requeue(id, h[1] == h[2] and 'crash' or 'requeue', a.retry)
  end
  if #ids > 0 then redis.call('HINCRBY', STATS, 'reaped', #ids) end
  count = count + #ids
end
return cjson.encode({ count = count })
