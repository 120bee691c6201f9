-- Reserves room for a file that a client of a project is about to upload, or changes nothing.
-- id project organization bytes due_ms max_uploads max_bytes least_price
-- Returns {1}, or {0, why, ...}: what `unaffordable` says, or 'uploads', ms until the first of the project's goes.
local id, project, due, now = ARGV[3], ARGV[4], tonumber(ARGV[7]), now_ms()
local reserved, sizes = P .. 'reserved:' .. project, P .. 'uploads:' .. project
if redis.call('HEXISTS', sizes, id) == 1 then return { 1 } end
local obstacle = unaffordable(ARGV[5], project, tonumber(ARGV[10]), now)
if obstacle then return { 0, unpack(obstacle) } end

redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)
local uploads, count, bytes, first = redis.call('HGETALL', sizes), 1, tonumber(ARGV[6]), due
for n = 1, #uploads, 2 do
  local goes = tonumber(redis.call('ZSCORE', reserved, uploads[n]) or 0)
  if goes == 0 then
    redis.call('HDEL', sizes, uploads[n])
  else
    count, bytes, first = count + 1, bytes + tonumber(uploads[n + 1]), math.min(first, goes)
  end
end
if count > tonumber(ARGV[8]) or bytes > tonumber(ARGV[9]) then return { 0, 'uploads', first - now } end

redis.call('ZADD', RETENTION, due, id)
redis.call('ZADD', reserved, due, id)
redis.call('HSET', sizes, id, ARGV[6])
redis.call('PEXPIREAT', reserved, due)
redis.call('PEXPIREAT', sizes, due)
redis.call('SET', P .. 'upload:' .. id, project, 'PXAT', due)
return { 1 }
