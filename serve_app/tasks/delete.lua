#!lua flags=allow-oom
-- Deletes an ended task before its retention is over: it leaves the project's list, readers see it as `deleted`, and
-- the sweep deletes it. While other tasks need its objects, the sweep keeps those.
-- Arguments: id, project, late_ms
-- A task that failed less than late_ms ago goes that much later: a worker that does not know of the end may still write.
-- Answers `deleted`; `unfinished`; `unknown` if the project has no such task.
local a = cjson.decode(ARGV[3])
local h = redis.call('HMGET', task_key(a.id), 'project', 'status', 'finished')
if h[1] ~= a.project then return answer('unknown') end
if not TERMINAL[h[2]] then return answer('unfinished') end
redis.call('HSET', task_key(a.id), 'deleted', 1)
redis.call('ZREM', P .. 'tasks:' .. a.project, a.id)
local late = h[2] == 'Ready' and 0 or tonumber(h[3]) + a.late_ms
redis.call('ZADD', RETENTION, 'LT', math.max(now_ms(), late), a.id)
return answer('deleted')
