-- Counts a request that makes no task against the rate of its key.
-- Arguments: key_id, every_ms, burst
-- Answers `passed` with `requests_left`, or `rejected` with a reason and `wait_ms`; then nothing is counted.
local a, now = cjson.decode(ARGV[3]), now_ms()
local wait, remaining, due = check_rate(a.key_id, a.every_ms, a.burst, now)
if wait > 0 then return answer('rejected', { reason = 'rate_limited', wait_ms = wait }) end
record_rate(a.key_id, due, now)
return answer('passed', { requests_left = remaining })
