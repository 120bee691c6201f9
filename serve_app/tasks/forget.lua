#!lua flags=allow-oom
-- Forgets ended tasks of a project whose data is being erased, and reservations; their objects are gone.
-- project late_ms, then id ...
-- A worker that does not know yet may still write an object of a task that ended less than late_ms ago: its id stays in
-- `retention`, and so does that of a reservation, for the sweep to delete what came.
local project, now = ARGV[3], now_ms()
for i = 5, #ARGV do
  local id, key = ARGV[i], task_key(ARGV[i])
  local h = redis.call('HMGET', key, 'project', 'status', 'finished')
  if not h[1] or (h[1] == project and TERMINAL[h[2]]) then
    if redis.call('DEL', key) == 1 then
      local late = tonumber(h[3]) + tonumber(ARGV[4])
      if late > now then redis.call('ZADD', RETENTION, late, id) else redis.call('ZREM', RETENTION, id) end
    end
    for _, index in ipairs({ 'tasks:', 'active:', 'reserved:' }) do redis.call('ZREM', P .. index .. project, id) end
    redis.call('HDEL', P .. 'uploads:' .. project, id)
    redis.call('DEL', P .. 'upload:' .. id, P .. 'storing:' .. id)
  end
end
return 1
