-- Hands waiting tasks to a dispatcher.
-- call n max_leased lease_ms max_exclusive max_memory dispatcher
-- A dispatcher that has room for more than there is, or may be leased, waits in `idle` to be woken; any other leaves it, and
-- wakes the next one if tasks are left. So it asks with an `n` of 0 where it was woken and has no room.
-- Nothing is handed out while the queue is `cold`: its first replica is on its way, and would be all that Ray starts.
-- Returns {id, attempt, exclusive (1 | 0), created, job, project, traceparent, now, left} for each; the same call gets the
-- same again. `left` is until the deadline, '' for a task that no work began on: its deadline is set then.
local reply = get_reply(ARGV[3])
if reply then return reply end
if redis.call('EXISTS', P .. 'cold:' .. QUEUE) == 1 or is_fuller_than(tonumber(ARGV[8])) then return {} end
local lease_ms, max_exclusive = tonumber(ARGV[6]), tonumber(ARGV[7])
local room = tonumber(ARGV[4])
local n = math.min(room, tonumber(ARGV[5]) - redis.call('ZCARD', LEASED))
local now, clock, out = now_ms(), virtual_now(), {}

local function take(id, exclusive)
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'status', 'created', 'job', 'project', 'traceparent', 'started', 'left')
  if h[1] ~= 'Pending' then return end
  if h[7] then
    redis.call('ZADD', DEADLINES, now + tonumber(h[7]), id)
    redis.call('HDEL', key, 'left')
  end
  local deadline = h[6] and redis.call('ZSCORE', DEADLINES, id)
  local attempt = redis.call('HINCRBY', key, 'attempt', 1)
  redis.call('ZADD', LEASED, now + lease_ms, id)
  if exclusive == 1 then redis.call('SADD', EXCLUSIVE, id) end
  out[#out + 1] = { id, attempt, exclusive, h[2], h[3], h[4], h[5] or '', now, deadline and deadline - now or '' }
end

while #out < n and redis.call('SCARD', EXCLUSIVE) < max_exclusive do
  local popped = redis.call('ZPOPMIN', QUARANTINED, 1)
  if #popped == 0 then break end
  take(popped[1], 1)
end
while #out < n do
  local popped = redis.call('ZPOPMIN', QUEUED, n - #out)
  if #popped == 0 then break end
  for i = 1, #popped, 2 do take(popped[i], 0) end
  local latest = tonumber(popped[#popped])
  if latest > clock then
    clock = latest
    redis.call('SET', CLOCK, score(latest))
    -- A project whose last task starts in the past has no claim left to remember.
    redis.call('ZREMRANGEBYSCORE', FAIR, '-inf', score(latest))
  end
end
if #out > 0 and redis.call('EXISTS', QUEUED) == 0 then
  -- End of a busy period: nobody waits, so nobody's past matters any more.
  local last = redis.call('ZRANGE', FAIR, -1, -1, 'WITHSCORES')
  if #last > 0 then
    redis.call('SET', CLOCK, last[2])
    redis.call('DEL', FAIR)
  end
end
if ARGV[9] ~= '' then
  if #out < room then
    redis.call('ZADD', IDLE, now, ARGV[9])
  else
    redis.call('ZREM', IDLE, ARGV[9])
    if redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then wake() end
  end
end
keep_reply(ARGV[3], out, lease_ms)
return out
