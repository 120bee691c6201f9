#!lua flags=allow-oom
-- Shares a task's result by `token`, unless it has a token already; without `token`, ends the sharing.
-- Arguments: id, project, token
-- Answers its `token`; none if it is not shared, or if the project has no such task.
local a = cjson.decode(ARGV[3])
local key = task_key(a.id)
if redis.call('HGET', key, 'project') ~= a.project then return '{}' end
if not a.token then
  redis.call('HDEL', key, 'shared')
  return '{}'
end
redis.call('HSETNX', key, 'shared', a.token)
return cjson.encode({ token = redis.call('HGET', key, 'shared') })
