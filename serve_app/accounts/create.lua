-- Creates a record, indexes it and adds an audit entry.
-- ARGV: record index member audit_stream actor action subject limit, then field value ...; limit 0 means unlimited
-- Returns 1; 0 without a change if the record exists, -1 if the index has `limit` members.
if redis.call('EXISTS', ARGV[1]) == 1 then return 0 end
local limit = tonumber(ARGV[8])
if limit > 0 and redis.call('SCARD', ARGV[2]) >= limit then return -1 end
redis.call('HSET', ARGV[1], unpack(ARGV, 9))
redis.call('SADD', ARGV[2], ARGV[3])
redis.call('XADD', ARGV[4], 'MAXLEN', '~', 100000, '*', 'actor', ARGV[5], 'action', ARGV[6], 'subject', ARGV[7])
return 1
