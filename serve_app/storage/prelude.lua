-- Put in front of every script by scripts.py. ARGV[1] is the key prefix, ARGV[2] the queue; a script's own arguments follow.
local P = ARGV[1]
local QUEUE, QUEUED, QUARANTINED, EXCLUSIVE, LEASED, DEADLINES, FAIR, CLOCK, STATS, TIMINGS, FAILED, IDLE, DEMAND
local RETENTION, OUTBOX = P .. 'retention', P .. 'outbox'
local TERMINAL = { ['Ready'] = true, ['Error'] = true, ['Request Moderated'] = true, ['Content Moderated'] = true }

-- From here on, names of keys are those of this queue.
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

-- Lua numbers lose digits when Redis turns them into text; scores keep all 17 this way.
local function score(x) return string.format('%.17g', x) end

-- Whether more than this fraction of the memory that the server may use is used. INFO takes longer than most steps, so
-- whoever finds no reading of the last second makes one. Where memory is used up it can't be kept, and the next does too.
local function is_fuller_than(fraction)
  local reading = redis.call('GET', P .. 'memory')
  if reading then return tonumber(reading) > fraction end
  local info = redis.call('INFO', 'memory')
  -- A pattern that may begin anywhere takes as long as all of INFO; plain text is found at once.
  local function number(name)
    local _, last = info:find('\n' .. name .. ':', 1, true)
    return tonumber(info:match('^%d+', last + 1))
  end
  local most = number('maxmemory')
  local used = most > 0 and number('used_memory') / most or 0
  redis.pcall('SET', P .. 'memory', score(used), 'PX', 1000)
  return used > fraction
end

-- Wakes the dispatcher that has waited longest for a task of this queue. One that is gone hears nothing: the next does.
local function wake()
  repeat
    local dispatcher = redis.call('ZPOPMIN', IDLE)[1]
  until not dispatcher or redis.call('PUBLISH', P .. 'wake:' .. dispatcher, QUEUE) > 0
end

-- Tells the processes that watch a task of its change.
local function tell_watchers(id)
  for _, watcher in ipairs(redis.call('SMEMBERS', P .. 'watch:' .. id)) do
    redis.call('PUBLISH', P .. 'changed:' .. watcher, id)
  end
end

-- A client library repeats a call whose answer was lost. What hands something out keeps its reply under the id of the
-- call for a while, so that a repetition gets the same and not more.
local function get_reply(call)
  local reply = redis.call('GET', P .. 'call:' .. call)
  return reply and cjson.decode(reply)
end

local function keep_reply(call, reply, ms)
  if #reply > 0 then redis.call('SET', P .. 'call:' .. call, cjson.encode(reply), 'PX', ms) end
end

-- Generic cell rate algorithm, for a key that may send one request every `every_ms`, and `burst` at once. Returns how
-- long to wait in ms, 0 for not at all; how many more requests there may be after this one; and when the next is due,
-- which `record_rate` notes if this one is taken.
local function check_rate(key_id, every_ms, burst, now)
  local due = math.max(now, tonumber(redis.call('GET', P .. 'rate:' .. key_id) or 0))
  local early = due + every_ms - burst * every_ms - now
  early = early - 0.01  -- sums of fractions are off by less
  return math.max(0, math.ceil(early)), math.max(0, math.floor(-early / every_ms)), due + every_ms
end

local function record_rate(key_id, due, now)
  redis.call('SET', P .. 'rate:' .. key_id, score(due), 'PX', math.max(1, math.ceil(due - now)))
end
