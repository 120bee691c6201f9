#!lua flags=allow-oom
-- Puts a segment of a journal in its index, moves the opening balance past it, and trims the stream up to its last entry.
-- stream index archived first last entries mark; `archived` is '' where there is no balance
-- Returns 1 done, 0 `last` is not the last of that many: others were faster, and nothing was changed.
local entries = tonumber(ARGV[6])
local oldest = redis.call('XRANGE', ARGV[1], '-', '+', 'COUNT', entries + 1)
if #oldest <= entries or oldest[entries][1] ~= ARGV[5] then return 0 end
redis.call('XADD', ARGV[2], ARGV[5], 'first', ARGV[4], 'mark', ARGV[7])
if ARGV[3] ~= '' then
  local fields = oldest[entries][2]
  for n = 1, #fields, 2 do
    if fields[n] == 'balance' then redis.call('HSET', ARGV[3], 'opening', fields[n + 1]) end
  end
end
redis.call('XTRIM', ARGV[1], 'MINID', '=', oldest[entries + 1][1])
return 1
