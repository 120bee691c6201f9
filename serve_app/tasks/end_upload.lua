#!lua flags=allow-oom
-- Notes how large an uploaded file is, which counted until now with the most that it might have had.
-- Arguments: id, project, bytes
local a = cjson.decode(ARGV[3])
local sizes = P .. 'uploads:' .. a.project
if redis.call('HEXISTS', sizes, a.id) == 1 then redis.call('HSET', sizes, a.id, a.bytes) end
redis.call('DEL', P .. 'upload:' .. a.id, P .. 'storing:' .. a.id)
