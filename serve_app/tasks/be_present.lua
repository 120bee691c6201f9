#!lua flags=allow-oom
-- Notes that a dispatcher is at work.
-- for_ms
redis.call('SET', P .. 'dispatcher', 1, 'PX', ARGV[3])
return 1
