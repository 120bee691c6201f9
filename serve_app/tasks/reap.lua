-- Takes back tasks whose lease ran out: their dispatcher is gone, and perhaps the worker with it.
-- limit max_strikes max_losses retention_ms details
-- Returns how many.
local ids = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now_ms(), 'LIMIT', 0, tonumber(ARGV[3]))
for _, id in ipairs(ids) do
  put_back(id, true, false, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7])
end
if #ids > 0 then redis.call('HINCRBY', STATS, 'reaped', #ids) end
return #ids
