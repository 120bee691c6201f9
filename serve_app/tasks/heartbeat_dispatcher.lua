#!lua flags=allow-oom
-- Notes that a dispatcher is at work. Arguments: for_ms
redis.call('SET', P .. 'dispatcher', 1, 'PX', cjson.decode(ARGV[3]).for_ms)
