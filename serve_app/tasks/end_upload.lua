#!lua flags=allow-oom
-- Notes how large an uploaded file is, which counted until now with the most that it might have had.
-- id project bytes
local sizes = P .. 'uploads:' .. ARGV[4]
if redis.call('HEXISTS', sizes, ARGV[3]) == 1 then redis.call('HSET', sizes, ARGV[3], ARGV[5]) end
redis.call('DEL', P .. 'upload:' .. ARGV[3], P .. 'storing:' .. ARGV[3])
return 1
