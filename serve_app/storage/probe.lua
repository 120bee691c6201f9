#!lua
-- Runs the commands of the service's scripts on keys of its own. Returns the errors about missing permissions; fails if
-- the server takes no writes. KEYS[1] and ARGV[1] are the prefix.
local prefix, missing = ARGV[1], {}
local function key(name) return prefix .. 'probe:' .. name end
local text, number, hash, list, set, zset, stream =
  key('text'), key('number'), key('hash'), key('list'), key('set'), key('zset'), key('stream')

redis.call('SET', text, '1', 'PX', 60000)
for _, command in ipairs({
  { 'TIME' }, { 'INFO', 'memory' }, { 'PUBLISH', prefix .. 'done', '' },
  { 'GET', text }, { 'MGET', text }, { 'EXISTS', text }, { 'EXPIRE', text, 60 }, { 'PEXPIRE', text, 60000 },
  { 'PEXPIREAT', text, 32503680000000 }, { 'PTTL', text }, { 'TTL', text },
  { 'INCR', number }, { 'DECR', number }, { 'INCRBY', number, 1 },
  { 'HSET', hash, 'a', 1 }, { 'HSETNX', hash, 'b', 1 }, { 'HINCRBY', hash, 'a', 1 }, { 'HINCRBYFLOAT', hash, 'a', 0.5 },
  { 'HGET', hash, 'a' }, { 'HMGET', hash, 'a' }, { 'HGETALL', hash }, { 'HEXISTS', hash, 'a' }, { 'HLEN', hash },
  { 'HSCAN', hash, 0 }, { 'HDEL', hash, 'a' },
  { 'LPUSH', list, 1 }, { 'RPUSH', list, 1 }, { 'LRANGE', list, 0, 0 }, { 'LTRIM', list, 0, 0 },
  { 'SADD', set, 1, 2 }, { 'SCARD', set }, { 'SMEMBERS', set }, { 'SISMEMBER', set, 1 }, { 'SRANDMEMBER', set },
  { 'SREM', set, 1 },
  { 'ZADD', zset, 1, 'a', 2, 'b', 3, 'c' }, { 'ZINCRBY', zset, 1, 'a' }, { 'ZCARD', zset },
  { 'ZSCORE', zset, 'a' }, { 'ZRANK', zset, 'a' }, { 'ZRANGE', zset, 0, 0 },
  { 'ZRANGEBYSCORE', zset, 0, 0 }, { 'ZREM', zset, 'a' }, { 'ZREMRANGEBYSCORE', zset, 0, 0 },
  { 'ZPOPMIN', zset },
  { 'XADD', stream, '*', 'a', 1 }, { 'XRANGE', stream, '-', '+', 'COUNT', 1 },
  { 'XREVRANGE', stream, '+', '-', 'COUNT', 1 },
  { 'SCAN', 0, 'COUNT', 1 }, { 'GETDEL', text }, { 'UNLINK', number }, { 'DEL', hash, list, set, zset, stream },
}) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then missing[#missing + 1] = answer.err end
end
return missing
