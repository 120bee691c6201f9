#!lua flags=allow-oom
-- Ends tasks that are past their deadline, waiting or working.
-- Arguments: queues, limit of each, retention_ms
-- Answers the `count`.
local a, now, ended = cjson.decode(ARGV[3]), now_ms(), 0
for _, queue in ipairs(a.queues) do
  enter(queue)
  local ids = redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, a.limit)
  for _, id in ipairs(ids) do
    redis.call('HSET', task_key(id), 'details', '{"error":"The task was not done before its deadline"}')
    finish(id, 'Error', a.retention_ms)
    redis.call('PUBLISH', P .. 'stop', id)
  end
  ended = ended + #ids
end
return cjson.encode({ count = ended })
