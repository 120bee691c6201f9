-- Creates a task and queues it, or changes nothing at all.
-- id project cost weight max_ready max_active queue_ms idempotency_ms idempotency_key body_hash reply, then field value ...
-- Returns {1, reply} created, {2, reply} the same request came before, {3} same key but another body,
-- {0, 'queue' | 'active', how many} refused.
local id, project, cost, weight = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local reply, key, idem = ARGV[13], task_key(ARGV[3]), ARGV[11]

if idem ~= '' then
  local seen = redis.call('HMGET', idem, 'body', 'reply', 'id')
  if seen[1] and seen[3] ~= id then
    if seen[1] ~= ARGV[12] then return { 3 } end
    return { 2, seen[2] }
  end
end
-- A client library that repeats the call after a lost answer finds its own task.
if redis.call('EXISTS', key) == 1 then return { 1, reply } end

local waiting = redis.call('ZCARD', READY) + redis.call('ZCARD', SUSPECTS)
if waiting >= tonumber(ARGV[7]) then return { 0, 'queue', waiting } end
local active = redis.call('ZCARD', P .. 'active:' .. project)
if active >= tonumber(ARGV[8]) then return { 0, 'active', active } end

-- Start-time fair queueing: a task starts where its project's last one ends, but never in the past.
local vt = math.max(tonumber(redis.call('GET', CLOCK) or 0), tonumber(redis.call('ZSCORE', FAIR, project) or 0))
redis.call('ZADD', FAIR, score(vt + cost / weight), project)

local now = now_ms()
redis.call('HSET', key, 'id', id, 'lane', LANE, 'project', project, 'status', 'Pending', 'attempt', 0, 'strikes', 0,
  'owner', '', 'vt', score(vt), 'share', score(cost / weight), 'created', now, unpack(ARGV, 14))
redis.call('ZADD', READY, score(vt), id)
redis.call('ZADD', DEADLINES, now + tonumber(ARGV[9]), id)
redis.call('ZADD', P .. 'active:' .. project, now, id)
redis.call('ZADD', P .. 'tasks:' .. project, now, id)
redis.call('ZREM', EXPIRING, id)
redis.call('HINCRBY', STATS, 'accepted', 1)
if idem ~= '' then
  redis.call('HSET', idem, 'body', ARGV[12], 'reply', reply, 'id', id)
  redis.call('PEXPIRE', idem, ARGV[10])
end
redis.call('PUBLISH', WAKE, '1')
return { 1, reply }
