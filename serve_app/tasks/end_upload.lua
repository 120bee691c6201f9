#!lua flags=allow-oom
-- Records the size of an uploaded file, which counted with its maximum until now.
-- Arguments: id, project, bytes
local a = cjson.decode(ARGV[3])
local sizes = P .. 'uploads:' .. a.project
if redis.call('HEXISTS', sizes, a.id) == 1 then redis.call('HSET', sizes, a.id, a.bytes) end
redis.call('DEL', P .. 'upload:' .. a.id, P .. 'storing:' .. a.id)
