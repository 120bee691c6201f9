#!lua flags=allow-oom
-- Prolongs claims. claim_ms, then id claim ...
for i = 4, #ARGV, 2 do
  local h = redis.call('HMGET', delivery_key(ARGV[i]), 'destination', 'claim', 'state')
  if h[2] == ARGV[i + 1] and h[3] == 'sending' then
    note_sending(h[1], ARGV[i], now_ms() + tonumber(ARGV[3]), true)
  end
end
return 1
