-- How a submission is answered that makes no task: in front of `look`, which only asks, and of `submit`, which decides.

local MOST_ACTIVE = 1000000  -- of any project: accounts/projects.py

-- Returns nil, or what to answer where a request came before with this idempotency key, '' for none, and made another
-- task than `id`, or is about to: {2, reply}, {3} for another body, {4} while there is no reply yet.
local function find_earlier(idem, body_hash, id)
  if idem == '' then return nil end
  local record = redis.call('HMGET', idem, 'body', 'reply', 'id')
  if not record[1] or record[3] == id then return nil end
  if record[1] ~= body_hash then return { 3 } end
  return record[2] and { 2, record[2] } or { 4 }
end

-- Returns nil, or {0, why, ...}: 'closed', 0 | 'full', 0 | 'rate', wait in ms | 'queue', how many | 'active', limit | what `unaffordable` says.
-- Then how many more requests the key may send after this one, and when its next is due.
local function check_limits(project, organization, price, max_queued, max_active, key_id, every_ms, burst, max_memory, now)
  local own = redis.call('HMGET', P .. 'project:' .. project, 'max_active', 'closed')
  if own[2] then return { 0, 'closed', 0 } end
  if is_fuller_than(max_memory) then return { 0, 'full', 0 } end
  local wait, remaining, due = check_rate(key_id, every_ms, burst, now)
  if wait > 0 then return { 0, 'rate', wait } end
  local waiting = redis.call('ZCARD', QUEUED) + redis.call('ZCARD', QUARANTINED)
  if waiting >= max_queued then return { 0, 'queue', waiting } end
  local most = tonumber(own[1] or '')
  max_active = most and math.max(1, math.min(most, MOST_ACTIVE)) or max_active
  if redis.call('ZCARD', P .. 'active:' .. project) >= max_active then return { 0, 'active', max_active } end
  local obstacle = unaffordable(organization, project, price, now)
  return obstacle and { 0, unpack(obstacle) }, remaining, due
end
