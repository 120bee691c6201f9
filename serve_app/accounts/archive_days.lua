#!lua flags=allow-oom
-- Puts a segment of days in its index, and forgets the counts that it holds: the keys. Without one, nothing was counted.
-- archived kind since until [index first last mark]
-- `since` is the first day that was not archived before, '' when there is none; `until` that which is none now.
-- Returns 1 done, 0 others were faster, and nothing was changed.
if (redis.call('HGET', ARGV[1], ARGV[2]) or '') ~= ARGV[3] then return 0 end
redis.call('HSET', ARGV[1], ARGV[2], ARGV[4])
if #KEYS > 0 then
  redis.call('XADD', ARGV[5], ARGV[7], 'first', ARGV[6], 'mark', ARGV[8])
  redis.call('UNLINK', unpack(KEYS))
end
return 1
