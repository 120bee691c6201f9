#!lua flags=allow-oom
-- Closes a project and begins the deletion of its data, unless it is closed since a deletion began.
-- ARGV: erasure project_record projects project organization audit_stream actor
if redis.call('HEXISTS', ARGV[1], 'began') == 1 and redis.call('HEXISTS', ARGV[2], 'closed') == 1 then return 0 end
local t = redis.call('TIME')
redis.call('DEL', ARGV[1])
redis.call('HSET', ARGV[1], 'began', t[1] .. '.' .. string.format('%06d', t[2]), 'by', ARGV[7])
redis.call('HSETNX', ARGV[2], 'organization', ARGV[5])
redis.call('HSET', ARGV[2], 'closed', 1)
redis.call('SADD', ARGV[3], ARGV[4])
redis.call('XADD', ARGV[6], '*', 'actor', ARGV[7], 'action', 'erase project', 'subject', ARGV[4])
return 1
