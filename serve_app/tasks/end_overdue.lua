#!lua flags=allow-oom
-- Ends tasks that are past their deadline, waiting or working.
-- limit retention_ms, then queue ...
-- Returns how many.
local now, ended = now_ms(), 0
for i = 5, #ARGV do
  enter(ARGV[i])
  local ids = redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))
  for _, id in ipairs(ids) do
    redis.call('HSET', task_key(id), 'details', '{"error":"The task was not done before its deadline"}')
    finish(id, 'Error', tonumber(ARGV[4]))
    redis.call('PUBLISH', P .. 'stop', id)
  end
  ended = ended + #ids
end
return ended
