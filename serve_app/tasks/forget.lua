#!lua flags=allow-oom
-- Forgets ended tasks of a project whose data is being erased, and reservations; their objects are gone.
-- Arguments: project, ids, late_ms
-- A worker that does not know of the end may still write an object of a task that ended less than late_ms ago. So its id
-- stays in `retention`, as does that of a reservation, and the sweep deletes late objects.
local a, now = cjson.decode(ARGV[3]), now_ms()
for _, id in ipairs(a.ids) do
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'project', 'status', 'finished')
  if not h[1] or (h[1] == a.project and TERMINAL[h[2]]) then
    if redis.call('DEL', key) == 1 then
      local late = tonumber(h[3]) + a.late_ms
      if late > now then redis.call('ZADD', RETENTION, late, id) else redis.call('ZREM', RETENTION, id) end
    end
    for _, index in ipairs({ 'tasks:', 'active:', 'reserved:' }) do redis.call('ZREM', P .. index .. a.project, id) end
    redis.call('HDEL', P .. 'uploads:' .. a.project, id)
    redis.call('DEL', P .. 'upload:' .. id, P .. 'storing:' .. id)
  end
end
