#!lua flags=allow-oom
-- Cancels a task for its owner.
-- Arguments: id, project, retention_ms
-- Answers `cancelled`, now or by an earlier call; `ended` otherwise; `unknown` if the project has no such task.
local a = cjson.decode(ARGV[3])
local key = task_key(a.id)
local h = redis.call('HMGET', key, 'project', 'status', 'cancelled')
if h[1] ~= a.project then return answer('unknown') end
if TERMINAL[h[2]] then return answer(h[3] and 'cancelled' or 'ended') end
virtual_time()
if not redis.call('ZSCORE', LEASED, a.id) and redis.call('ZSCORE', FAIR, a.project) then
  -- It was never leased, so its project gets the share back.
  redis.call('ZINCRBY', FAIR, score(-tonumber(redis.call('HGET', key, 'share'))), a.project)
end
redis.call('HSET', key, 'cancelled', 1, 'details', '{"error":"Cancelled by the client"}')
finish(a.id, 'Error', a.retention_ms)
redis.call('HINCRBY', STATS, 'cancelled', 1)
redis.call('PUBLISH', P .. 'stop', a.id)
return answer('cancelled')
