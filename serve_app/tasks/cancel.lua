#!lua flags=allow-oom
-- Ends a task at its owner's wish.
-- id project retention_ms
-- Returns 1 cancelled, now or by an earlier call; 2 it had ended otherwise; 0 no such task in this project.
local id, key = ARGV[3], task_key(ARGV[3])
local h = redis.call('HMGET', key, 'project', 'status', 'cancelled')
if h[1] ~= ARGV[4] then return 0 end
if TERMINAL[h[2]] then return h[3] and 1 or 2 end
virtual_now()
if not redis.call('ZSCORE', LEASED, id) and redis.call('ZSCORE', FAIR, ARGV[4]) then
  -- It took no turn, so its project gets the turn back.
  redis.call('ZINCRBY', FAIR, score(-tonumber(redis.call('HGET', key, 'share'))), ARGV[4])
end
redis.call('HSET', key, 'cancelled', 1, 'details', '{"error":"Cancelled by the client"}')
finish(id, 'Error', tonumber(ARGV[5]))
redis.call('HINCRBY', STATS, 'cancelled', 1)
redis.call('PUBLISH', P .. 'stop', id)
return 1
