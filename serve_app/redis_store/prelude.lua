-- Put in front of every script by scripts.py. ARGV[1] is the key prefix, ARGV[2] the lane; a script's own arguments follow.
local P, LANE = ARGV[1], ARGV[2]
local QUEUED, SUSPECTS, ISOLATED = P .. 'queued:' .. LANE, P .. 'suspects:' .. LANE, P .. 'isolated:' .. LANE
local LEASED, DEADLINES = P .. 'leased:' .. LANE, P .. 'deadlines:' .. LANE
local FAIR, CLOCK = P .. 'fair:' .. LANE, P .. 'clock:' .. LANE
local STATS, TIMINGS, WAKE = P .. 'stats:' .. LANE, P .. 'timings:' .. LANE, P .. 'wake:' .. LANE
local RETENTION, OUTBOX = P .. 'retention', P .. 'outbox'
local TERMINAL = { ['Ready'] = true, ['Error'] = true, ['Request Moderated'] = true, ['Content Moderated'] = true }

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function task_key(id) return P .. 'task:' .. id end

-- Lua numbers lose digits when Redis turns them into text; scores keep all 17 this way.
local function score(x) return string.format('%.17g', x) end

-- Generic cell rate algorithm, for a key that may send one request every `every_ms`, and `burst` at once. Returns how
-- long to wait in ms, 0 for not at all; how many more requests there may be after this one; and when the next is due,
-- which `note_pace` notes if this one is taken.
local function pace(key_id, every_ms, burst, now)
  local due = math.max(now, tonumber(redis.call('GET', P .. 'rate:' .. key_id) or 0))
  local early = due + every_ms - burst * every_ms - now
  early = early - 0.01  -- sums of fractions are off by less
  return math.max(0, math.ceil(early)), math.max(0, math.floor(-early / every_ms)), due + every_ms
end

local function note_pace(key_id, due, now)
  redis.call('SET', P .. 'rate:' .. key_id, score(due), 'PX', math.max(1, math.ceil(due - now)))
end
