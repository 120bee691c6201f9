-- Gives credits to an organization, or takes some back. prefix organization grant_id amount by note
-- Returns {1, balance} done, {2, balance} this grant was made before, {0, balance} there is less than is to be taken.
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
