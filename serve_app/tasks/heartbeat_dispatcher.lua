#!lua flags=allow-oom
-- Records that a dispatcher runs. Arguments: for_ms
redis.call('SET', P .. 'dispatcher', 1, 'PX', cjson.decode(ARGV[3]).for_ms)
