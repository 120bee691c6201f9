-- Counts of recent time, a hash a minute and a hash a quarter of an hour: tasks/windows.py reads them. In front of every
-- script that tells of one.
local PERIODS = { m = { 60000, 62 }, q = { 900000, 98 } }  -- ms, and how many are kept
local GROWTH = 1.1  -- of a bucket's bound over that of the one below, as in windows.py

local function count_recently(counts)
  local now = now_ms()
  for name, period in pairs(PERIODS) do
    local key = P .. 'recent:' .. QUEUE .. ':' .. name .. ':' .. math.floor(now / period[1])
    for field, amount in pairs(counts) do redis.call('HINCRBYFLOAT', key, field, score(amount)) end
    redis.call('PEXPIRE', key, period[1] * period[2])
  end
end

local function bucket(name, value)
  return name .. ':' .. math.ceil(math.log(math.max(value, 0.001)) / math.log(GROWTH))
end
