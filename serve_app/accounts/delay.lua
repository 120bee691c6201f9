-- Counts an attempt, unless the last ones are too near. After `free` attempts each one doubles the wait for the next.
-- KEYS[1] count, KEYS[2] wait; free longest_s window_s
-- Returns how long to wait in seconds; 0 where the attempt was counted and may go on.
local wait = redis.call('TTL', KEYS[2])
if wait > 0 then return wait end
local count = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
local beyond = count - tonumber(ARGV[1])
if beyond >= 0 then
  redis.call('SET', KEYS[2], 1, 'EX', math.min(2 ^ beyond, tonumber(ARGV[2])))
end
return 0
