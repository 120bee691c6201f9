#!lua flags=allow-oom
-- Notes that an erasure is done, and what is left of the project; once. erasure project ledger looked_at audit_stream
if redis.call('HEXISTS', ARGV[1], 'began') == 0 or redis.call('HEXISTS', ARGV[1], 'done') == 1 then return 0 end
local t = redis.call('TIME')
redis.call('HSET', ARGV[1], 'done', t[1] .. '.' .. string.format('%06d', t[2]), 'ledger', ARGV[3], 'looked_at', ARGV[4])
redis.call('XADD', ARGV[5], '*', 'actor', redis.call('HGET', ARGV[1], 'by'), 'action', 'erased project',
  'subject', ARGV[2], 'tasks', redis.call('HGET', ARGV[1], 'tasks') or 0)
return 1
