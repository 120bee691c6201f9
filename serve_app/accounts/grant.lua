-- Adds an amount, which may be negative, to an organization's credits.
-- ARGV: prefix organization grant_id amount by note
-- Returns {1, balance}; without a change {2, balance} if this grant was made before, {0, balance} if it is below -balance.
local P, organization, amount = ARGV[1], ARGV[2], tonumber(ARGV[4])
local credits, grants = P .. 'credits:' .. organization, P .. 'grants:' .. organization
local balance = tonumber(redis.call('HGET', credits, 'balance') or 0)
if redis.call('HEXISTS', grants, ARGV[3]) == 1 then return { 2, balance } end
if balance + amount < 0 then return { 0, balance } end
redis.call('HINCRBY', credits, 'granted', amount)
balance = redis.call('HINCRBY', credits, 'balance', amount)
redis.call('HSET', grants, ARGV[3], amount)
redis.call('XADD', P .. 'ledger:' .. organization, 'MAXLEN', '~', 100000, '*', 'kind', 'grant', 'amount', amount,
  'balance', balance,
  'grant', ARGV[3], 'by', ARGV[5], 'note', ARGV[6])
return { 1, balance }
