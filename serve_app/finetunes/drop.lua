#!lua flags=allow-oom
-- Removes the record of a tuned model. record index id [erasure]; one that is for an erasure counts there.
local there = redis.call('DEL', ARGV[1])
redis.call('ZREM', ARGV[2], ARGV[3])
if ARGV[4] then
  redis.call('HINCRBY', ARGV[4], 'finetunes', there)
  local listed = 'listed ' .. ARGV[3]
  redis.call('HINCRBY', ARGV[4], 'objects', redis.call('HGET', ARGV[4], listed) or 0)
  redis.call('HDEL', ARGV[4], listed)
end
return there
