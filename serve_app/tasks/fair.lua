-- Whose turn it is in a queue, by start-time fair queueing: in front of every script that gives a turn, takes one back or
-- goes by one (scripts.py). In virtual time a task starts where its project's last one ends, but never in the past, and
-- takes its share: its work, divided by its project's weight.

-- A share without bounds would stop the clock for everyone. The bounds of weights are those of accounts/projects.py.
local MIN_WEIGHT, MAX_WEIGHT = 0.01, 100
local MIN_WORK, MAX_WORK = 0.001, 1e6  -- megapixel-steps
local FAR = 1e12  -- further on, numbers get too coarse for small shares: virtual time begins anew

-- The number, or the nearest that is in bounds; the least for what is no number.
local function within(x, least, most)
  if not (x and x >= least) then return least end
  return math.min(x, most)
end

local function compute_share(work, weight)
  return within(work, MIN_WORK, MAX_WORK) / within(weight, MIN_WEIGHT, MAX_WEIGHT)
end

-- Sets the clock to 0 and gives turns to all that wait as if they came now, one after the other. Those that had a turn,
-- and may come back, are before them.
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

-- The virtual time now, in [0, FAR). It begins anew when it has come that far.
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
