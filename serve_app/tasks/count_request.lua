-- Counts requests that make no task against the rate of their key.
-- key_id every_ms burst
-- Returns {1, requests left}, or {0, 'rate', wait in ms} and nothing is counted.
local now = now_ms()
local wait, remaining, due = check_rate(ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), now)
if wait > 0 then return { 0, 'rate', wait } end
record_rate(ARGV[3], due, now)
return { 1, remaining }
