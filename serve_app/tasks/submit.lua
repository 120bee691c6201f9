-- Creates a task, holds its price and queues it, or changes nothing at all.
-- id project work weight max_queued max_active queue_ms idempotency_ms idempotency_key body_hash reply
-- organization price endpoint key_id every_ms burst not_after_ms max_memory needs keep_ms, then field value ...
-- `needs`: the ended task whose objects this one needs, until it ends and at least so long, or empty.
-- Returns {1, reply, requests left} created, {2, reply} the same request came before, {3} same key but another body,
-- {0, 'late', 0} its time was over, {0, 'needs', 0} what it needs is deleted, {0, why, ...} refused; the latter three as admission.lua says.
local id, project, share = ARGV[3], ARGV[4], compute_share(tonumber(ARGV[5]), tonumber(ARGV[6]))
local reply, key, idem = ARGV[13], task_key(ARGV[3]), ARGV[11]
local organization, price, endpoint, key_id = ARGV[14], tonumber(ARGV[15]), ARGV[16], ARGV[17]
local now = now_ms()

-- Of two that are both on their way, as the first took longer than its key was kept, the first to come here counts.
local earlier = find_earlier(idem, ARGV[12], id)
if earlier and earlier[1] ~= 4 then return earlier end
-- A client library that repeats the call after a lost answer finds its own task.
if redis.call('EXISTS', key) == 1 then return { 1, reply, 0 } end

-- Whoever asked may have gone by the time that a server which stood still gets to it.
if now > tonumber(ARGV[20]) then return { 0, 'late', 0 } end
if ARGV[22] ~= '' then
  local needs = redis.call('HMGET', task_key(ARGV[22]), 'id', 'deleted')
  if not needs[1] or needs[2] then return { 0, 'needs', 0 } end
end
local refusal, remaining, due = check_limits(project, organization, price, tonumber(ARGV[7]), tonumber(ARGV[8]), key_id,
  tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[21]), now)
if refusal then return refusal end
-- First, so that a server which may not publish refuses before anything is written. Nobody hears of it before the end.
wake()
hold(organization, project, id, endpoint, price, now)
record_rate(key_id, due, now)

local vt = math.max(virtual_now(), tonumber(redis.call('ZSCORE', FAIR, project) or 0))
redis.call('ZADD', FAIR, score(math.min(vt + share, FAR)), project)

redis.call('HSET', key, 'id', id, 'queue', QUEUE, 'project', project, 'status', 'Pending', 'attempt', 0, 'crashes', 0,
  'vt', score(vt), 'share', score(share), 'work', ARGV[5], 'created', now, 'organization', organization,
  'held', price, 'endpoint', endpoint, 'key_id', key_id, unpack(ARGV, 24))
redis.call('ZADD', QUEUED, score(vt), id)
redis.call('ZADD', DEADLINES, now + tonumber(ARGV[9]), id)
redis.call('ZADD', P .. 'active:' .. project, now, id)
redis.call('ZADD', P .. 'tasks:' .. project, now, id)
redis.call('ZREM', RETENTION, id)
if ARGV[22] ~= '' then
  redis.call('HSET', key, 'needs', ARGV[22])
  redis.call('SADD', needed_key(ARGV[22]), id)
  if redis.call('ZSCORE', RETENTION, ARGV[22]) then
    redis.call('ZADD', RETENTION, 'GT', now + tonumber(ARGV[23]), ARGV[22])
  end
end
redis.call('ZREM', P .. 'reserved:' .. project, id)
redis.call('HINCRBY', STATS, 'accepted', 1)
count_recently({ accepted = 1 })
redis.call('HINCRBYFLOAT', DEMAND, 'unfinished', ARGV[5])
redis.call('HINCRBYFLOAT', DEMAND, 'accepted', ARGV[5])
if idem ~= '' then
  redis.call('HSET', idem, 'body', ARGV[12], 'reply', reply, 'id', id)
  redis.call('PEXPIRE', idem, ARGV[10])
end
return { 1, reply, remaining }
