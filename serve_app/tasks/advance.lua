#!lua flags=allow-oom
-- Records the progress of a leased task: its phase only moves forward, its progress never falls.
-- Arguments: id, attempt, status, run_ms; progress, preview and resolved (the payload for later attempts) if they change.
-- Answers `advanced` or `stale`.
local RANK = { ['Pending'] = 0, ['Reasoning'] = 1, ['Generating'] = 2 }
local a = cjson.decode(ARGV[3])
local key = task_key(a.id)
local h = redis.call('HMGET', key, 'attempt', 'status', 'progress', 'started', 'created')
if h[1] ~= tostring(a.attempt) or not RANK[h[2]] or not redis.call('ZSCORE', LEASED, a.id) then
  return answer('stale')
end

tell_watchers(a.id)
if RANK[a.status] > RANK[h[2]] then redis.call('HSET', key, 'status', a.status) end
if a.resolved then redis.call('HSET', key, 'resolved', a.resolved) end
if a.status == 'Generating' then redis.call('HSET', key, 'begun', a.attempt) end
if a.status == 'Generating' and not h[4] then
  local now = now_ms()
  redis.call('HSET', key, 'started', now)
  local wait = now - tonumber(h[5])
  observe('wait', wait)
  count_recently({ [bucket('wait', wait)] = 1 })
  redis.call('ZADD', DEADLINES, now + a.run_ms, a.id)
end
if a.progress and a.progress > tonumber(h[3] or -1) then
  redis.call('HSET', key, 'progress', string.format('%.4f', a.progress))
end
if a.preview then redis.call('HSET', key, 'preview', a.preview) end
return answer('advanced')
