-- Histograms of durations, read by tasks/queue_load.py. Included by the scripts that observe one.
local BUCKETS_MS = { 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 900000, 3600000 }

local function observe_in(key, name, ms)
  local bucket = 'more'
  for _, bound in ipairs(BUCKETS_MS) do
    if ms <= bound then
      bucket = bound
      break
    end
  end
  redis.call('HINCRBY', key, name .. ':' .. bucket, 1)
  redis.call('HINCRBY', key, name .. ':sum', ms)
end

-- Observes a duration of this queue's tasks.
local function observe(name, ms) observe_in(TIMINGS, name, ms) end
