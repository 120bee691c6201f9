#!lua flags=allow-oom
-- Gives a leased task back.
-- id attempt crash (1 | 0) alone (1 | 0) interrupted (1 | 0), then the retry limits:
-- max_crashes max_losses max_interruptions retention_ms details queue_ms
-- Returns 1 when it waits again, 2 when it ended, 0 for a stale attempt.
local id = ARGV[3]
if redis.call('HGET', task_key(id), 'attempt') ~= ARGV[4] or not redis.call('ZSCORE', LEASED, id) then return 0 end
local how = { crash = ARGV[5] == '1', alone = ARGV[6] == '1', interrupted = ARGV[7] == '1' }
return requeue(id, how, retry_limits(8))
