-- Counts of recent time: a hash for each minute and one for each quarter of an hour, read by tasks/windows.py. Included
-- by the scripts that count.
local PERIODS = { m = { 60000, 62 }, q = { 900000, 98 } }  -- ms, and the number that are kept
local GROWTH = 1.1  -- bound of a bucket over that of the one below, as in windows.py

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
