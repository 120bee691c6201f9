-- Gives a leased task back.
-- id attempt strike (1 | 0) alone (1 | 0) max_strikes max_losses retention_ms details
-- Returns 1 when it waits again, 2 when it ended, 0 for a stale attempt.
local id = ARGV[3]
if redis.call('HGET', task_key(id), 'attempt') ~= ARGV[4] or not redis.call('ZSCORE', LEASED, id) then return 0 end
return put_back(id, ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10])
