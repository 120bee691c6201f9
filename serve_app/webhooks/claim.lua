#!lua flags=allow-oom
-- Claims deliveries that are due, fairly among destinations, within the limit of each organization.
-- Takes {call_id, limit, claim_ms, schedule_ms, max_age_ms, lost_entry, expired_entry, circuit}.
-- Answers a list of {id, number, attempt, organization}. An attempt is recorded before its claim expires, or it is lost.
-- A repeated call gets the same answer.
local a = cjson.decode(ARGV[3])
local cached = cached_reply(a.call_id)
if cached then return cached end
local now, claims = now_ms(), {}
local MAX_DESTINATIONS, MAX_SCANNED, BATCH, MAX_EXPIRED, POSTPONED_MS = 200, 2000, 50, 1000, 500

-- A lost claim is a failed attempt: the next one keeps the schedule, or a delivery that kills senders has all its
-- attempts within minutes.
local function requeue_lost(destination)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', sending_key(destination), '-inf', now)) do
    end_sending(destination, id)
    note_attempt(id, a.lost_entry)
    local wait_ms = a.schedule_ms[tonumber(redis.call('HGET', delivery_key(id), 'attempts'))]
    if wait_ms then wait_until(destination, id, now + wait_ms) else fail(id, destination, now) end
  end
end

-- Fails old deliveries of a destination that stays down and gets too few calls to try each. Returns true if there may be
-- more of them.
local function fail_expired(destination)
  local failures = tonumber(redis.call('HGET', destination_key(destination), 'failures') or 0)
  if failures < a.circuit.failure_threshold then return false end
  local count = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    if tonumber(redis.call('HGET', delivery_key(id), 'since')) + a.max_age_ms <= now then
      note_attempt(id, a.expired_entry)
      fail(id, destination, now)
      count = count + 1
    end
  end
  return count == MAX_EXPIRED
end

-- Returns the further calls that the organization of a destination may make. Expired claims do not count.
local capacities = {}
local function capacity_of_organization(organization)
  if not capacities[organization] then
    local calls = calls_key(organization)
    redis.call('ZREMRANGEBYSCORE', calls, '-inf', now)
    capacities[organization] = a.circuit.per_organization - redis.call('ZCARD', calls)
  end
  return capacities[organization]
end

local function claim(destination, organization, limit)
  requeue_lost(destination)
  local may_expire_more = fail_expired(destination)
  local capacity, count = math.min(capacity_of(destination, a.circuit, now), limit), 0
  if capacity > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting_key(destination), '-inf', now, 'LIMIT', 0, capacity)) do
      redis.call('ZREM', waiting_key(destination), id)
      note_sending(destination, id, now + a.claim_ms)
      redis.call('HSET', delivery_key(id), 'state', 'sending')
      redis.call('HDEL', delivery_key(id), 'next')
      claims[#claims + 1] = {
        id = id,
        attempt = redis.call('HINCRBY', delivery_key(id), 'attempts', 1),
        number = redis.call('HINCRBY', delivery_key(id), 'claim', 1),
        organization = organization,
      }
      count = count + 1
    end
  end
  reschedule(destination, a.circuit, now)
  if may_expire_more then
    redis.call('ZADD', OUTBOX, now, destination)
    redis.call('PUBLISH', OUTBOX, '1')
  end
  return count
end

local scanned, visited, seen, due, found_new = 0, 0, {}, nil, nil
local function may_continue() return #claims < a.limit and visited < MAX_DESTINATIONS and scanned < MAX_SCANNED end
repeat
  due, found_new = redis.call('ZRANGEBYSCORE', OUTBOX, '-inf', now, 'LIMIT', 0, BATCH), false
  for _, destination in ipairs(due) do
    if not may_continue() then break end
    local organization = organization_of(destination)
    local capacity = capacity_of_organization(organization)
    if capacity <= 0 then
      -- Behind the due destinations of other organizations, and checked again soon.
      redis.call('ZADD', OUTBOX, now + POSTPONED_MS, destination)
      scanned, found_new = scanned + 1, true
    elseif not seen[destination] then
      seen[destination], visited, found_new = true, visited + 1, true
      local count = claim(destination, organization, math.min(capacity, a.limit - #claims))
      capacities[organization] = capacity - count
    end
  end
until #due < BATCH or not found_new or not may_continue()
if #due == BATCH and #claims < a.limit then redis.call('PUBLISH', OUTBOX, '1') end
if #claims == 0 then return '[]' end
return cache_reply(a.call_id, cjson.encode(claims), a.claim_ms)
