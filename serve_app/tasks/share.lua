#!lua flags=allow-oom
-- Shares a task's result by `token`, unless it has a token already. An empty token ends sharing.
-- id project token
-- Returns its token; empty where it is not shared, or no task of the project.
local key = task_key(ARGV[3])
if redis.call('HGET', key, 'project') ~= ARGV[4] then return '' end
if ARGV[5] == '' then
  redis.call('HDEL', key, 'shared')
  return ''
end
redis.call('HSETNX', key, 'shared', ARGV[5])
return redis.call('HGET', key, 'shared')
