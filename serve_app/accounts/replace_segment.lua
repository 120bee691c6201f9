#!lua flags=allow-oom
-- Puts a segment in place of another of the same rows in its index, and counts the rows that differ.
-- index last mark new_mark counts field n
-- Returns 1, or 0 where there is no such segment, and nothing is changed.
local rows, found = redis.call('XRANGE', ARGV[1], '-', '+'), 0
for _, row in ipairs(rows) do
  for n = 1, #row[2], 2 do
    if row[1] == ARGV[2] and row[2][n] == 'mark' and row[2][n + 1] == ARGV[3] then
      row[2][n + 1] = ARGV[4]
      found = 1
    end
  end
end
if found == 0 then return 0 end
redis.call('DEL', ARGV[1])
for _, row in ipairs(rows) do redis.call('XADD', ARGV[1], row[1], unpack(row[2])) end
redis.call('HINCRBY', ARGV[5], ARGV[6], ARGV[7])
return 1
