#!lua flags=allow-oom
-- Reads a key with its project and organization, and records its use.
-- ARGV: prefix digest default_organization default_project
-- Returns {key, project, organization} as lists of fields and values; {} if there is no such key.
local P = ARGV[1]
local key = redis.call('HGETALL', P .. 'key:' .. ARGV[2])
if #key == 0 then return {} end
local h = redis.call('HMGET', P .. 'key:' .. ARGV[2], 'id', 'project')
local project_key = P .. 'project:' .. (h[2] or ARGV[4])
local project = redis.call('HGETALL', project_key)
local organization = redis.call('HGET', project_key, 'organization') or ARGV[3]
redis.call('HSET', P .. 'keys:used', h[1], redis.call('TIME')[1])
return { key, project, redis.call('HGETALL', P .. 'organization:' .. organization) }
