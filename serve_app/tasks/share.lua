#!lua flags=allow-oom
-- Has a task's result be shared by `token`, unless it is by another already; by none any more where it is empty.
-- id project token
-- Returns the token by which it is shared: empty where it is by none, or the project has no such task.
local key = task_key(ARGV[3])
if redis.call('HGET', key, 'project') ~= ARGV[4] then return '' end
if ARGV[5] == '' then
  redis.call('HDEL', key, 'shared')
  return ''
end
redis.call('HSETNX', key, 'shared', ARGV[5])
return redis.call('HGET', key, 'shared')
