#!lua flags=allow-oom
-- Puts a key's id in place of its name. record erasure
local h = redis.call('HMGET', ARGV[1], 'id', 'name')
if not h[1] or h[1] == h[2] then return 0 end
redis.call('HSET', ARGV[1], 'name', h[1])
redis.call('HINCRBY', ARGV[2], 'names', 1)
return 1
