#!lua flags=allow-oom
-- Releases an idempotency key that `precheck` claimed for a task which was not made. Keys of other tasks and of tasks
-- that were made stay. Arguments: idempotency_key, id
local a = cjson.decode(ARGV[3])
local record = redis.call('HMGET', a.idempotency_key, 'id', 'reply')
if record[1] == a.id and not record[2] then redis.call('DEL', a.idempotency_key) end
