-- Reserves an upload of a project, or changes nothing.
-- Arguments: id, project, organization, bytes, due_ms, max_uploads, max_bytes, price (the minimum cost of a task)
-- Answers `passed`, or `rejected` with a reason: that of `find_obstacle`, or `too_many_uploads` with `wait_ms` until the
-- project's first upload expires.
local a, now = cjson.decode(ARGV[3]), now_ms()
local reserved, sizes = P .. 'reserved:' .. a.project, P .. 'uploads:' .. a.project
if redis.call('HEXISTS', sizes, a.id) == 1 then return answer('passed') end
local obstacle = find_obstacle(a.organization, a.project, a.price, now)
if obstacle then return answer('rejected', obstacle) end

redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)
local uploads, count, bytes, first = redis.call('HGETALL', sizes), 1, a.bytes, a.due_ms
for n = 1, #uploads, 2 do
  local goes = tonumber(redis.call('ZSCORE', reserved, uploads[n]) or 0)
  if goes == 0 then
    redis.call('HDEL', sizes, uploads[n])
  else
    count, bytes, first = count + 1, bytes + tonumber(uploads[n + 1]), math.min(first, goes)
  end
end
if count > a.max_uploads or bytes > a.max_bytes then
  return answer('rejected', { reason = 'too_many_uploads', wait_ms = first - now })
end

redis.call('ZADD', RETENTION, a.due_ms, a.id)
redis.call('ZADD', reserved, a.due_ms, a.id)
redis.call('HSET', sizes, a.id, a.bytes)
redis.call('PEXPIREAT', reserved, a.due_ms)
redis.call('PEXPIREAT', sizes, a.due_ms)
redis.call('SET', P .. 'upload:' .. a.id, a.project, 'PXAT', a.due_ms)
return answer('passed')
