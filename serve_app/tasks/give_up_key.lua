#!lua flags=allow-oom
-- Frees an idempotency key that was kept for a task which is not to be. idempotency_key id
-- Returns 1 when it is free again, 0 when it is another's, or its task was made.
local record = redis.call('HMGET', ARGV[3], 'id', 'reply')
if record[1] ~= ARGV[4] or record[2] then return 0 end
return redis.call('DEL', ARGV[3])
