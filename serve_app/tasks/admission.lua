-- Rejections of submissions. Included by `precheck` and `submit`.

local MAX_ACTIVE = 1000000  -- of any project, as in accounts/projects.py

local function reject(reason, fields)
  local answer = fields or {}
  answer.outcome, answer.reason = 'rejected', reason
  return answer
end

-- Returns the answer if an earlier request with this idempotency key made another task, or is about to; nil otherwise.
local function find_earlier(a)
  if not a.idempotency_key then return nil end
  local record = redis.call('HMGET', a.idempotency_key, 'body', 'reply', 'id')
  if not record[1] or record[3] == a.id then return nil end
  if record[1] ~= a.body_hash then return reject('idempotency_mismatch') end
  return record[2] and { outcome = 'repeated', reply = record[2] } or reject('in_progress')
end

-- Returns a rejection or nil, the requests that the key may still send, and the time at which its next is due.
local function check_limits(a, now)
  local own = redis.call('HMGET', P .. 'project:' .. a.project, 'max_active', 'closed')
  if own[2] then return reject('project_closed') end
  if is_fuller_than(a.max_memory) then return reject('store_full') end
  local wait, remaining, due = check_rate(a.key_id, a.every_ms, a.burst, now)
  if wait > 0 then return reject('rate_limited', { wait_ms = wait }) end
  if redis.call('ZCARD', QUEUED) + redis.call('ZCARD', QUARANTINED) >= a.max_queued then return reject('queue_full') end
  local limit = tonumber(own[1] or '')
  limit = limit and math.max(1, math.min(limit, MAX_ACTIVE)) or a.max_active
  if redis.call('ZCARD', P .. 'active:' .. a.project) >= limit then return reject('too_many_active', { limit = limit }) end
  local obstacle = find_obstacle(a.organization, a.project, a.price, now)
  return obstacle and reject(obstacle.reason, obstacle), remaining, due
end
