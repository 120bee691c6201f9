-- Leases waiting tasks to a dispatcher.
-- Arguments: call, n, max_leased, lease_ms, max_exclusive, max_memory, dispatcher (its name, if it wants to be woken)
-- A dispatcher that gets fewer than `n` tasks waits in `idle` to be woken; any other leaves `idle`, and wakes the next one
-- if tasks are left. So a woken dispatcher without capacity calls with an `n` of 0.
-- No task is leased while the queue is `cold`: its first replica is starting, and would be the only one that Ray starts.
-- Answers `leases`, each with id, attempt, exclusive, created, payload, project, traceparent, now, and `remaining_ms`
-- until the deadline if work has begun before. A repeated call gets the same answer.
local a = cjson.decode(ARGV[3])
local cached = cached_reply(a.call)
if cached then return cached end
if redis.call('EXISTS', P .. 'cold:' .. QUEUE) == 1 or is_fuller_than(a.max_memory) then return '{}' end
local n = math.min(a.n, a.max_leased - redis.call('ZCARD', LEASED))
local now, clock, out = now_ms(), virtual_time(), {}

local function take(id, exclusive)
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'status', 'created', 'job', 'project', 'traceparent', 'started', 'left', 'resolved')
  if h[1] ~= 'Pending' then return end
  if h[7] then
    redis.call('ZADD', DEADLINES, now + tonumber(h[7]), id)
    redis.call('HDEL', key, 'left')
  end
  local deadline = h[6] and redis.call('ZSCORE', DEADLINES, id)
  local attempt = redis.call('HINCRBY', key, 'attempt', 1)
  redis.call('ZADD', LEASED, now + a.lease_ms, id)
  if exclusive then redis.call('SADD', EXCLUSIVE, id) end
  out[#out + 1] = {
    id = id, attempt = attempt, exclusive = exclusive, created = tonumber(h[2]), payload = h[8] or h[3], project = h[4],
    traceparent = h[5] or '', now = now, remaining_ms = deadline and deadline - now or nil,
  }
end

while #out < n and redis.call('SCARD', EXCLUSIVE) < a.max_exclusive do
  local popped = redis.call('ZPOPMIN', QUARANTINED, 1)
  if #popped == 0 then break end
  take(popped[1], true)
end
while #out < n do
  local popped = redis.call('ZPOPMIN', QUEUED, n - #out)
  if #popped == 0 then break end
  for i = 1, #popped, 2 do take(popped[i], false) end
  local latest = tonumber(popped[#popped])
  if latest > clock then
    clock = latest
    redis.call('SET', CLOCK, score(latest))
    -- A project whose last task ends in the past starts at the clock anyway.
    redis.call('ZREMRANGEBYSCORE', FAIR, '-inf', score(latest))
  end
end
if #out > 0 and redis.call('EXISTS', QUEUED) == 0 then
  -- End of a busy period: no project waits, so their past no longer matters.
  local last = redis.call('ZRANGE', FAIR, -1, -1, 'WITHSCORES')
  if #last > 0 then
    redis.call('SET', CLOCK, last[2])
    redis.call('DEL', FAIR)
  end
end
if a.dispatcher then
  if #out < a.n then
    redis.call('ZADD', IDLE, now, a.dispatcher)
  else
    redis.call('ZREM', IDLE, a.dispatcher)
    if redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then wake() end
  end
end
if #out == 0 then return '{}' end
return cache_reply(a.call, cjson.encode({ leases = out }), a.lease_ms)
