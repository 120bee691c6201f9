-- Writes the record of a tuned model and indexes it.
-- ARGV: record index id created project_record is_new, then field value ...
-- Returns 1; 0 without a change if a new one is for a closed project, or an earlier one was deleted.
if ARGV[6] == '1' then
  if redis.call('HEXISTS', ARGV[5], 'closed') == 1 and redis.call('EXISTS', ARGV[1]) == 0 then return 0 end
elseif redis.call('EXISTS', ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', ARGV[1], unpack(ARGV, 7))
redis.call('ZADD', ARGV[2], ARGV[4], ARGV[3])
return 1
