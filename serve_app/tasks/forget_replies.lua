#!lua flags=allow-oom
-- Forgets replies to a project's requests, and jobs of tasks that are gone in what calls were handed out.
-- project, then keys: `idempotency:...` of the project, `call:...` of anybody
local erasure = P .. 'erasure:' .. ARGV[3]
for i = 4, #ARGV do
  local key, gone = ARGV[i], 0
  if key:sub(1, #P + 5) ~= P .. 'call:' then
    gone = redis.call('DEL', key)
  else
    local rows, left = cjson.decode(redis.call('GET', key) or '[]'), {}
    for _, row in ipairs(rows) do
      -- Leases are of five parts; claims of deliveries tell nothing.
      if #row < 5 or redis.call('EXISTS', task_key(row[1])) == 1 then left[#left + 1] = row end
    end
    if #left < #rows then
      gone = 1
      if #left > 0 then redis.call('SET', key, cjson.encode(left), 'KEEPTTL') else redis.call('DEL', key) end
    end
  end
  if gone > 0 then redis.call('HINCRBY', erasure, 'replies', gone) end
end
return 1
