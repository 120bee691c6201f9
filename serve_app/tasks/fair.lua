-- Start-time fair queueing over projects. Included by the scripts that schedule tasks (scripts.py). In virtual time, a
-- task starts at the end of its project's last one, but never in the past, and takes its share: its work divided by its
-- project's weight.

-- An unbounded share would stop the clock for all projects. The bounds of weights are those of accounts/projects.py.
local MIN_WEIGHT, MAX_WEIGHT = 0.01, 100
local MIN_WORK, MAX_WORK = 0.001, 1e6  -- megapixel-steps
local FAR = 1e12  -- beyond it, doubles are too coarse for small shares: the clock restarts

-- Returns the nearest number in bounds; the minimum for nil and NaN.
local function clamp(x, minimum, maximum)
  if not (x and x >= minimum) then return minimum end
  return math.min(x, maximum)
end

local function compute_share(work, weight)
  return clamp(work, MIN_WORK, MAX_WORK) / clamp(weight, MIN_WEIGHT, MAX_WEIGHT)
end

-- Sets the clock to 0 and queues the waiting tasks anew, in their order. Leased and quarantined tasks, which may be
-- requeued, come before them.
local function restart_clock()
  for _, id in ipairs(redis.call('ZRANGE', LEASED, 0, -1)) do redis.call('HSET', task_key(id), 'vt', 0) end
  for _, id in ipairs(redis.call('ZRANGE', QUARANTINED, 0, -1)) do
    redis.call('HSET', task_key(id), 'vt', 0)
    redis.call('ZADD', QUARANTINED, 0, id)
  end
  local waiting, queued = {}, redis.call('ZRANGE', QUEUED, 0, -1, 'WITHSCORES')
  for i = 1, #queued, 2 do
    local h = redis.call('HMGET', task_key(queued[i]), 'project', 'share', 'created')
    waiting[#waiting + 1] = {
      id = queued[i], vt = tonumber(queued[i + 1]),
      project = h[1], share = tonumber(h[2]), created = tonumber(h[3]),
    }
  end
  table.sort(waiting, function(a, b)
    if a.vt ~= b.vt then return a.vt < b.vt end
    return a.created < b.created
  end)
  local ends = {}
  redis.call('DEL', FAIR)
  redis.call('SET', CLOCK, 0)
  for _, task in ipairs(waiting) do
    local vt = ends[task.project] or 0
    ends[task.project] = math.min(vt + task.share, FAR)
    redis.call('HSET', task_key(task.id), 'vt', score(vt), 'share', score(task.share))
    redis.call('ZADD', QUEUED, score(vt), task.id)
  end
  for project, tail in pairs(ends) do redis.call('ZADD', FAIR, score(tail), project) end
end

-- Returns the virtual time in [0, FAR); restarts the clock at FAR.
local function virtual_time()
  local clock = tonumber(redis.call('GET', CLOCK) or 0)
  local sound = clock < FAR
  for _, index in ipairs({ FAIR, QUEUED }) do
    local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
    sound = sound and tonumber(last[2] or 0) <= FAR
  end
  if sound then return clock end
  restart_clock()
  return 0
end
