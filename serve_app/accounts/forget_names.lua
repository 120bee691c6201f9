#!lua flags=allow-oom
-- Puts ids in place of the names of a project's keys, and takes those names out of the audit log, whose entries stay.
-- key_ids prefix audit_stream project
for _, id in ipairs(redis.call('SMEMBERS', ARGV[1])) do
  local digest = redis.call('HGET', ARGV[2] .. 'keys', id)
  if digest then redis.call('HSET', ARGV[2] .. 'key:' .. digest, 'name', id) end
end
local rows, found = redis.call('XRANGE', ARGV[3], '-', '+'), false
for _, row in ipairs(rows) do
  local fields, left = {}, {}
  for n = 1, #row[2], 2 do
    fields[row[2][n]] = row[2][n + 1]
    if row[2][n] ~= 'name' then
      left[#left + 1] = row[2][n]
      left[#left + 1] = row[2][n + 1]
    end
  end
  if fields.project == ARGV[4] and fields.name then
    found, row[2] = true, left
  end
end
if not found then return 0 end
redis.call('DEL', ARGV[3])
for _, row in ipairs(rows) do redis.call('XADD', ARGV[3], row[1], unpack(row[2])) end
return 1
