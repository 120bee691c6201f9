#!lua flags=allow-oom
-- Notes how far a leased task has come: its phase only moves forward, its progress never falls.
-- id attempt status progress preview run_ms
-- Empty progress or preview: unchanged. Returns 1, or 0 for a stale attempt.
local RANK = { ['Pending'] = 0, ['Reasoning'] = 1, ['Generating'] = 2 }
local id, key = ARGV[3], task_key(ARGV[3])
local h = redis.call('HMGET', key, 'attempt', 'status', 'progress', 'started', 'created')
if h[1] ~= ARGV[4] or not RANK[h[2]] or not redis.call('ZSCORE', LEASED, id) then return 0 end

tell_watchers(id)
if RANK[ARGV[5]] > RANK[h[2]] then redis.call('HSET', key, 'status', ARGV[5]) end
if ARGV[5] == 'Generating' then redis.call('HSET', key, 'begun', ARGV[4]) end
if ARGV[5] == 'Generating' and not h[4] then
  local now = now_ms()
  redis.call('HSET', key, 'started', now)
  local wait = now - tonumber(h[5])
  observe('wait', wait)
  count_recently({ [bucket('wait', wait)] = 1 })
  redis.call('ZADD', DEADLINES, now + tonumber(ARGV[8]), id)
end
if ARGV[6] ~= '' and tonumber(ARGV[6]) > tonumber(h[3] or -1) then redis.call('HSET', key, 'progress', ARGV[6]) end
if ARGV[7] ~= '' then redis.call('HSET', key, 'preview', ARGV[7]) end
return 1
