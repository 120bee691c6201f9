#!lua flags=allow-oom
-- Prolongs the leases that a dispatcher still holds.
-- Arguments: lease_ms, leases {id, attempt}
-- Answers those that are `lost`, by their positions from 0: their work must stop.
local a, lost = cjson.decode(ARGV[3]), {}
local until_ms = now_ms() + a.lease_ms
for position, lease in ipairs(a.leases) do
  local id, attempt = unpack(lease)
  if redis.call('HGET', task_key(id), 'attempt') == tostring(attempt) and redis.call('ZSCORE', LEASED, id) then
    redis.call('ZADD', LEASED, 'XX', until_ms, id)
  else
    lost[#lost + 1] = position - 1
  end
end
return cjson.encode({ lost = lost })
