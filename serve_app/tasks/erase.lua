#!lua flags=allow-oom
-- Ends tasks of a project whose data is being erased, and forgets their webhooks without sending them.
-- Arguments: project, ids, retention_ms
local a = cjson.decode(ARGV[3])
for _, id in ipairs(a.ids) do
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'project', 'status', 'queue')
  if h[1] == a.project then
    if not TERMINAL[h[2]] then
      enter(h[3])
      redis.call('HDEL', key, 'webhook_destination')
      redis.call('HSET', key, 'details', '{"error":"The data of its project was erased"}')
      finish(id, 'Error', a.retention_ms)
      redis.call('HINCRBY', STATS, 'cancelled', 1)
      redis.call('PUBLISH', P .. 'stop', id)
    end
    local destination = redis.call('HGET', delivery_key(id), 'destination')
    if destination then
      forget_delivery(id)
      if redis.call('EXISTS', waiting_key(destination), sending_key(destination)) == 0 then
        redis.call('ZREM', OUTBOX, destination)
        redis.call('DEL', destination_key(destination))
      end
    end
  end
end
