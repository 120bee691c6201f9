-- Counts generations that an organization made with a licensed model. licences counts model number report
-- A client library that repeats the call after a lost answer counts once, by the key `report`.
-- Returns the day's count, or -1 where the organization has no licence, and nothing is counted.
if redis.call('HEXISTS', ARGV[1], ARGV[3]) == 0 then return -1 end
if not redis.call('SET', ARGV[5], 1, 'NX', 'EX', 60) then return 0 end
local counts = ARGV[2] .. math.floor(redis.call('TIME')[1] / 86400)
local count = redis.call('HINCRBY', counts, ARGV[3], ARGV[4])
redis.call('EXPIRE', counts, 400 * 86400)  -- as accounts/audit.py says
return count
