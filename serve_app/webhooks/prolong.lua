#!lua flags=allow-oom
-- Prolongs the claims that have not expired. Takes {claim_ms, claims = {{id, number}, ...}}.
local a = cjson.decode(ARGV[3])
local until_ms = now_ms() + a.claim_ms
for _, claim in ipairs(a.claims) do
  local h = redis.call('HMGET', delivery_key(claim.id), 'destination', 'claim', 'state')
  if tonumber(h[2]) == claim.number and h[3] == 'sending' then note_sending(h[1], claim.id, until_ms, true) end
end
