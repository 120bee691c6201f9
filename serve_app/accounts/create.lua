-- Makes a record, its place in an index and its line in the audit log, or changes nothing.
-- record index member audit_stream actor action subject, then field value ...
-- Returns 1 made, 0 there is one already.
if redis.call('EXISTS', ARGV[1]) == 1 then return 0 end
redis.call('HSET', ARGV[1], unpack(ARGV, 8))
redis.call('SADD', ARGV[2], ARGV[3])
redis.call('XADD', ARGV[4], '*', 'actor', ARGV[5], 'action', ARGV[6], 'subject', ARGV[7])
return 1
