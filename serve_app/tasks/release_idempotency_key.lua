#!lua flags=allow-oom
-- Frees an idempotency key that was kept for a task which is not to be. Another's key, or that of a task that was made,
-- stays. Arguments: idempotency_key, id
local a = cjson.decode(ARGV[3])
local record = redis.call('HMGET', a.idempotency_key, 'id', 'reply')
if record[1] == a.id and not record[2] then redis.call('DEL', a.idempotency_key) end
