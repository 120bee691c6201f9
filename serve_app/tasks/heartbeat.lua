#!lua flags=allow-oom
-- Prolongs the leases a dispatcher still holds.
-- lease_ms, then id attempt ...
-- Returns the positions (from 0) of those it has lost: their work must stop.
local until_ms, lost = now_ms() + tonumber(ARGV[3]), {}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  if redis.call('HGET', task_key(id), 'attempt') == ARGV[i + 1] and redis.call('ZSCORE', LEASED, id) then
    redis.call('ZADD', LEASED, 'XX', until_ms, id)
  else
    lost[#lost + 1] = (i - 4) / 2
  end
end
return lost
