-- Counts an attempt unless it comes too early. After `free_attempts` each one doubles the wait for the next.
-- KEYS: count wait; ARGV: free_attempts max_wait_s life_s
-- Returns the seconds to wait; 0 if the attempt was counted.
local wait_ms = redis.call('PTTL', KEYS[2])
if wait_ms > 0 then return math.ceil(wait_ms / 1000) end
local count = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
local beyond = count - tonumber(ARGV[1])
if beyond >= 0 then
  redis.call('SET', KEYS[2], 1, 'EX', math.min(2 ^ beyond, tonumber(ARGV[2])))
end
return 0
