#!lua flags=allow-oom
-- Removes the record of a tuned model. record index id
redis.call('ZREM', ARGV[2], ARGV[3])
return redis.call('DEL', ARGV[1])
