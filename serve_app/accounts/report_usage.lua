-- Counts generations that an organization made with a licensed model. ARGV: licences counts model number report
-- `report` is a key that makes a call repeated by redis-py count once.
-- Returns the day's count; -1 without a change if the organization has no licence.
if redis.call('HEXISTS', ARGV[1], ARGV[3]) == 0 then return -1 end
if not redis.call('SET', ARGV[5], 1, 'NX', 'EX', 60) then return 0 end
local counts = ARGV[2] .. math.floor(redis.call('TIME')[1] / 86400)
local count = redis.call('HINCRBY', counts, ARGV[3], ARGV[4])
redis.call('EXPIRE', counts, 400 * 86400)  -- DAYS of accounts/history.py
return count
