#!lua flags=allow-oom
-- Has an ended task go now, and not when its retention is over: it leaves the project's list, is `deleted` to its
-- readers, and the sweep deletes it. While others are made of it, the sweep keeps what they need.
-- id project late_ms
-- What failed less than late_ms ago goes that much later: a worker that does not know of the end yet may still write.
-- Returns 1 it goes; 2 it has not ended; 0 no such task in this project.
local id = ARGV[3]
local h = redis.call('HMGET', task_key(id), 'project', 'status', 'finished')
if h[1] ~= ARGV[4] then return 0 end
if not TERMINAL[h[2]] then return 2 end
redis.call('HSET', task_key(id), 'deleted', 1)
redis.call('ZREM', P .. 'tasks:' .. ARGV[4], id)
local late = h[2] == 'Ready' and 0 or tonumber(h[3]) + tonumber(ARGV[5])
redis.call('ZADD', RETENTION, 'LT', math.max(now_ms(), late), id)
return 1
