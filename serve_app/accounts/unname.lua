#!lua flags=allow-oom
-- Takes the names of a project's keys out of an audit log; all else of its entries stays, ids too.
-- stream project erasure
local rows, found = redis.call('XRANGE', ARGV[1], '-', '+'), 0
for _, row in ipairs(rows) do
  local fields = {}
  for n = 1, #row[2], 2 do fields[row[2][n]] = row[2][n + 1] end
  if fields.project == ARGV[2] and fields.name then
    found = found + 1
    local left = {}
    for n = 1, #row[2], 2 do
      if row[2][n] ~= 'name' then
        left[#left + 1] = row[2][n]
        left[#left + 1] = row[2][n + 1]
      end
    end
    row[2] = left
  end
end
if found == 0 then return 0 end
redis.call('DEL', ARGV[1])
for _, row in ipairs(rows) do redis.call('XADD', ARGV[1], row[1], unpack(row[2])) end
redis.call('HINCRBY', ARGV[3], 'names', found)
return found
