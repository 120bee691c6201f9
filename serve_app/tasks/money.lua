-- The money of tasks, in integer milli-credits: held at submission, settled or returned at the end, in the same step
-- that makes or ends the task. Included by the scripts that do either (scripts.py). accounts/credits.py documents the
-- keys.

-- Converts days since 1970-01-01 to year, month and day. Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
local function civil(days)
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor(
    (doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365
  )
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return yoe + era * 400 + (month <= 2 and 1 or 0), month, doy - math.floor((153 * mp + 2) / 5) + 1
end

-- Returns the UTC windows of a time: {name, first day, first day of the next}. Weeks begin on Mondays.
local function compute_windows(ms)
  local day = math.floor(ms / 86400000)
  local monday = day - (day + 3) % 7
  local _, _, date = civil(day)
  local first = day - date + 1
  local _, _, date_after = civil(first + 32)
  return { { 'day', day, day + 1 }, { 'week', monday, monday + 7 }, { 'month', first, first + 33 - date_after } }
end

local function credits_key(organization) return P .. 'credits:' .. organization end

local function spent_key(project, window) return P .. 'spent:' .. project .. ':' .. window[1] .. ':' .. window[2] end

-- Returns nil, or the obstacle to paying a price: reason and `balance`; or reason, window, limit, spent, resets_ms.
local function find_obstacle(organization, project, price, now)
  if price == 0 then return nil end
  local limits = redis.call('HMGET', P .. 'project:' .. project, 'limit_day', 'limit_week', 'limit_month')
  for n, window in ipairs(compute_windows(now)) do
    local limit = tonumber(limits[n] or '')
    local spent = limit and tonumber(redis.call('GET', spent_key(project, window)) or 0)
    if limit and spent + price > limit then
      return {
        reason = 'spending_limit', window = window[1], limit = limit, spent = spent, resets_ms = window[3] * 86400000,
      }
    end
  end
  local balance = tonumber(redis.call('HGET', credits_key(organization), 'balance') or 0)
  if balance < price then return { reason = 'insufficient_credits', balance = balance } end
  return nil
end

-- Changes the spending of a submission's windows.
local function count_spending(project, submitted_ms, amount)
  for _, window in ipairs(compute_windows(submitted_ms)) do
    local key = spent_key(project, window)
    if amount > 0 then
      local spent = redis.call('INCRBY', key, amount)
      if spent == amount then redis.call('PEXPIREAT', key, (window[3] + 40) * 86400000) end
    elseif redis.call('EXISTS', key) == 1 then
      redis.call('INCRBY', key, amount)  -- an expired window stays forgotten
    end
  end
end

local function note_in_ledger(organization, kind, amount, ...)
  local balance = redis.call('HINCRBY', credits_key(organization), 'balance', amount)
  -- ENTRIES of accounts/history.py.
  redis.call('XADD', P .. 'ledger:' .. organization, 'MAXLEN', '~', 100000, '*', 'kind', kind, 'amount', amount,
    'balance', balance, ...)
end

local function hold(organization, project, id, endpoint, price, now)
  if price == 0 then return end
  redis.call('HINCRBY', credits_key(organization), 'held', price)
  count_spending(project, now, price)
  note_in_ledger(organization, 'hold', -price, 'task', id, 'project', project, 'endpoint', endpoint)
end

-- Ends a hold: spends `cost`, at most all of it, and returns the rest. `finish` calls it once per task.
local function settle(organization, project, id, endpoint, held, cost, submitted_ms, now, ready)
  if ready then
    local usage = P .. 'usage:' .. organization .. ':' .. math.floor(now / 86400000)
    redis.call('HINCRBY', usage, 'tasks|' .. project .. '|' .. endpoint, 1)
    redis.call('HINCRBY', usage, 'cost|' .. project .. '|' .. endpoint, cost)
    redis.call('EXPIRE', usage, 400 * 86400)  -- DAYS of accounts/history.py
    redis.call('HINCRBY', P .. 'made', 'tasks|' .. endpoint, 1)
    redis.call('HINCRBY', P .. 'made', 'cost|' .. endpoint, cost)
    if cost > 0 then redis.call('ZINCRBY', P .. 'paid', cost, project) end
  end
  if held == 0 then return end
  redis.call('HINCRBY', credits_key(organization), 'held', -held)
  if cost > 0 then redis.call('HINCRBY', credits_key(organization), 'spent', cost) end
  if cost < held then count_spending(project, submitted_ms, cost - held) end
  note_in_ledger(organization, ready and 'settle' or 'return', held - cost, 'task', id, 'project', project,
    'endpoint', endpoint, 'cost', cost)
end
