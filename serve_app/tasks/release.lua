#!lua flags=allow-oom
-- Releases a lease and requeues its task.
-- Arguments: id, attempt, cause and retry (retry_and_end.lua); resolved, the payload for later attempts, if it is new
-- Answers `requeued`; `ended`; `stale`.
local a = cjson.decode(ARGV[3])
if redis.call('HGET', task_key(a.id), 'attempt') ~= tostring(a.attempt) or not redis.call('ZSCORE', LEASED, a.id) then
  return answer('stale')
end
if a.resolved then redis.call('HSET', task_key(a.id), 'resolved', a.resolved) end
return answer(requeue(a.id, a.cause, a.retry))
