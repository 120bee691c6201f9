-- Creates a task, holds its price and queues it, or changes nothing at all.
-- Arguments: id, project, organization, endpoint, key_id, price, work, weight, queue_ms, not_after_ms, fields of the task's
-- hash; max_memory, every_ms, burst, max_queued, max_active as in admission.lua; idempotency_key, idempotency_ms,
-- body_hash and reply for a request that has such a key; needs, the ended task whose objects this one needs until it ends
-- and for at least keep_ms.
-- Answers `created` with `requests_left`; `repeated` with the `reply` to the same request; `rejected` with a reason.
local a, now = cjson.decode(ARGV[3]), now_ms()
local key, share = task_key(a.id), compute_share(a.work, a.weight)

-- If the first request took longer than its claim of the key, two are in progress: the first to come here counts.
local earlier = find_earlier(a)
if earlier and earlier.reason ~= 'in_progress' then return cjson.encode(earlier) end
-- A client library that repeats the call after a lost answer finds its own task.
if redis.call('EXISTS', key) == 1 then return answer('created', { requests_left = 0 }) end

-- The client may have given up while the server stood still.
if now > a.not_after_ms then return cjson.encode(reject('expired')) end
if a.needs then
  local needs = redis.call('HMGET', task_key(a.needs), 'id', 'deleted')
  if not needs[1] or needs[2] then return cjson.encode(reject('needed_task_gone')) end
end
local rejection, remaining, due = check_limits(a, now)
if rejection then return cjson.encode(rejection) end
-- Publishes first, so that a server which may not publish fails before any write. Messages go out after the script.
wake()
hold(a.organization, a.project, a.id, a.endpoint, a.price, now)
record_rate(a.key_id, due, now)

local vt = math.max(virtual_time(), tonumber(redis.call('ZSCORE', FAIR, a.project) or 0))
redis.call('ZADD', FAIR, score(math.min(vt + share, FAR)), a.project)

redis.call('HSET', key, 'id', a.id, 'queue', QUEUE, 'project', a.project, 'status', 'Pending', 'attempt', 0, 'crashes', 0,
  'vt', score(vt), 'share', score(share), 'work', score(a.work), 'created', now, 'organization', a.organization,
  'held', a.price, 'endpoint', a.endpoint, 'key_id', a.key_id, unpack(flatten(a.fields)))
redis.call('ZADD', QUEUED, score(vt), a.id)
redis.call('ZADD', DEADLINES, now + a.queue_ms, a.id)
redis.call('ZADD', P .. 'active:' .. a.project, now, a.id)
redis.call('ZADD', P .. 'tasks:' .. a.project, now, a.id)
redis.call('ZREM', RETENTION, a.id)
if a.needs then
  redis.call('HSET', key, 'needs', a.needs)
  redis.call('SADD', needed_key(a.needs), a.id)
  if redis.call('ZSCORE', RETENTION, a.needs) then redis.call('ZADD', RETENTION, 'GT', now + a.keep_ms, a.needs) end
end
redis.call('ZREM', P .. 'reserved:' .. a.project, a.id)
redis.call('HINCRBY', STATS, 'accepted', 1)
count_recently({ accepted = 1 })
redis.call('HINCRBYFLOAT', DEMAND, 'unfinished', score(a.work))
redis.call('HINCRBYFLOAT', DEMAND, 'accepted', score(a.work))
if a.idempotency_key then
  redis.call('HSET', a.idempotency_key, 'body', a.body_hash, 'reply', a.reply, 'id', a.id)
  redis.call('PEXPIRE', a.idempotency_key, a.idempotency_ms)
end
return answer('created', { requests_left = remaining })
