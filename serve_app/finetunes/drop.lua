#!lua flags=allow-oom
-- Deletes the record of a tuned model. ARGV: record index id
redis.call('ZREM', ARGV[2], ARGV[3])
return redis.call('DEL', ARGV[1])
