-- Makes a record, its place in an index and its line in the audit log, or changes nothing.
-- record index member audit_stream actor action subject most, then field value ...; `most` in the index, 0 for any number
-- Returns 1 made, 0 there is one already, -1 the index is full.
if redis.call('EXISTS', ARGV[1]) == 1 then return 0 end
local most = tonumber(ARGV[8])
if most > 0 and redis.call('SCARD', ARGV[2]) >= most then return -1 end
redis.call('HSET', ARGV[1], unpack(ARGV, 9))
redis.call('SADD', ARGV[2], ARGV[3])
redis.call('XADD', ARGV[4], 'MAXLEN', '~', 100000, '*', 'actor', ARGV[5], 'action', ARGV[6], 'subject', ARGV[7])
return 1
