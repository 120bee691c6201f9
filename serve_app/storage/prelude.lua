-- Every script begins with this file (scripts.py). ARGV[1] is the key prefix, ARGV[2] the queue, ARGV[3] a JSON object
-- of the script's arguments without those that are nil. An answer is a JSON object.
local P = ARGV[1]
local QUEUE, QUEUED, QUARANTINED, EXCLUSIVE, LEASED, DEADLINES, FAIR, CLOCK, STATS, TIMINGS, FAILED, IDLE, DEMAND
local RETENTION, OUTBOX = P .. 'retention', P .. 'outbox'
local TERMINAL = { ['Ready'] = true, ['Error'] = true, ['Request Moderated'] = true, ['Content Moderated'] = true }

-- Sets the names of keys to those of this queue.
local function enter(queue)
  QUEUE = queue
  QUEUED, QUARANTINED, EXCLUSIVE = P .. 'queued:' .. queue, P .. 'quarantined:' .. queue, P .. 'exclusive:' .. queue
  LEASED, DEADLINES = P .. 'leased:' .. queue, P .. 'deadlines:' .. queue
  FAIR, CLOCK = P .. 'fair:' .. queue, P .. 'clock:' .. queue
  STATS, TIMINGS, FAILED = P .. 'stats:' .. queue, P .. 'timings:' .. queue, P .. 'failed:' .. queue
  IDLE, DEMAND = P .. 'idle:' .. queue, P .. 'demand:' .. queue
end

enter(ARGV[2])

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function task_key(id) return P .. 'task:' .. id end

local function needed_key(id) return P .. 'needed:' .. id end

-- Formats a number with all 17 digits, some of which Redis' own conversion drops.
local function score(x) return string.format('%.17g', x) end

-- Returns whether the server uses more than this fraction of its maxmemory. INFO takes longer than most scripts, so a
-- reading is kept for a second; if memory is used up it can't be kept, and each call reads anew.
local function is_fuller_than(fraction)
  local reading = redis.call('GET', P .. 'memory')
  if reading then return tonumber(reading) > fraction end
  local info = redis.call('INFO', 'memory')
  -- Searching for plain text is much faster than an unanchored pattern.
  local function number(name)
    local _, last = info:find('\n' .. name .. ':', 1, true)
    return tonumber(info:match('^%d+', last + 1))
  end
  local limit = number('maxmemory')
  local used = limit > 0 and number('used_memory') / limit or 0
  redis.pcall('SET', P .. 'memory', score(used), 'PX', 1000)
  return used > fraction
end

-- Wakes the dispatcher that has waited longest for a task of this queue, skipping those that are gone.
local function wake()
  repeat
    local dispatcher = redis.call('ZPOPMIN', IDLE)[1]
  until not dispatcher or redis.call('PUBLISH', P .. 'wake:' .. dispatcher, QUEUE) > 0
end

-- Notifies the processes that watch a task.
local function tell_watchers(id)
  for _, watcher in ipairs(redis.call('SMEMBERS', P .. 'watch:' .. id)) do
    redis.call('PUBLISH', P .. 'changed:' .. watcher, id)
  end
end

-- redis-py repeats a call whose answer was lost. A script that hands something out caches its reply by the call's id for
-- a while, so that the repeated call gets the same.
local function cached_reply(call) return redis.call('GET', P .. 'call:' .. call) end

local function cache_reply(call, reply, ms)
  redis.call('SET', P .. 'call:' .. call, reply, 'PX', ms)
  return reply
end

-- Returns the JSON of an outcome and its fields.
local function answer(outcome, fields)
  local named = fields or {}
  named.outcome = outcome
  return cjson.encode(named)
end

-- Returns names and values as HSET takes them.
local function flatten(fields)
  local list = {}
  for name, value in pairs(fields) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  return list
end
