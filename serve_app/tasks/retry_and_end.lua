-- Ends and requeues tasks. Included by the scripts that may do so (scripts.py).

-- Sets a terminal status; nothing else does. In the same step, the task leaves every index, its money is settled and its
-- webhook is due.
local function finish(id, status, retention_ms)
  local key, now = task_key(id), now_ms()
  local h = redis.call('HMGET', key, 'project', 'webhook_destination', 'organization', 'held', 'cost', 'endpoint', 'created', 'started', 'cancelled', 'work', 'needs')
  local project, held, ready = h[1], tonumber(h[4] or 0), status == 'Ready'
  local cost = ready and math.max(0, math.min(tonumber(h[5] or held), held)) or 0
  redis.call('HSET', key, 'status', status, 'finished', now)
  redis.call('HDEL', key, 'held')
  if ready then redis.call('HSET', key, 'cost', cost) else redis.call('HDEL', key, 'cost') end
  if h[3] then settle(h[3], project, id, h[6], held, cost, tonumber(h[7]), now, ready) end
  redis.call('ZREM', QUEUED, id)
  redis.call('ZREM', QUARANTINED, id)
  redis.call('SREM', EXCLUSIVE, id)
  local was_leased = redis.call('ZREM', LEASED, id) == 1
  redis.call('ZREM', DEADLINES, id)
  if redis.call('EXISTS', QUEUED, QUARANTINED, LEASED) == 0 then
    redis.call('HSET', DEMAND, 'unfinished', 0) -- drops rounding errors
  elseif h[10] then
    redis.call('HINCRBYFLOAT', DEMAND, 'unfinished', '-' .. h[10])
  end
  redis.call('ZREM', P .. 'active:' .. project, id)
  if h[11] then
    redis.call('SREM', needed_key(h[11]), id)
    -- Its owner deleted it meanwhile, and no other task needs it.
    if redis.call('EXISTS', needed_key(h[11])) == 0 and redis.call('HEXISTS', task_key(h[11]), 'deleted') == 1 then
      redis.call('ZADD', RETENTION, 'XX', 'LT', now, h[11])
    end
  end
  redis.call('ZADD', RETENTION, now + retention_ms, id)
  -- The sweep removes the record, which it needs to find the index entries. The record expires if no sweep runs.
  redis.call('PEXPIRE', key, retention_ms + 7 * 86400000)
  redis.call('HINCRBY', STATS, status, 1)
  if status == 'Error' and not h[9] then
    redis.call('LPUSH', FAILED, id)
    redis.call('LTRIM', FAILED, 0, 9)
  end
  local counts = { [h[9] and 'cancelled' or status] = 1 }
  if ready and h[8] then
    local run, work = now - tonumber(h[8]), tonumber(h[10] or 1)
    observe('work', run)
    counts[bucket('run', run)], counts[bucket('pace', run / work)] = 1, 1
    counts.run_ms, counts.work = run, work
  end
  count_recently(counts)
  if h[2] then announce(id, h[2], now) end
  redis.call('PUBLISH', P .. 'done', id)
  if was_leased and redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then wake() end
end

-- Stores the remaining run time of a quarantined task, which waits for a worker of its own: the time counts from its next
-- lease on (lease.lua). Until then it may wait as long as any task.
local function stop_the_clock(id, queue_ms)
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'started', 'created')
  local deadline = h[1] and tonumber(redis.call('ZSCORE', DEADLINES, id))
  if not deadline then return end
  redis.call('HSET', key, 'left', math.max(0, deadline - now_ms()))
  redis.call('ZADD', DEADLINES, math.max(deadline, tonumber(h[2]) + queue_ms), id)
end

-- Requeues a leased task. Causes: `requeue`, without blame; `crash`, the worker died with it; `crash_alone`, it was the
-- only task of that worker; `interruption`, the worker started it and gave up, without blame.
-- `retry` has max_crashes, max_losses, max_interruptions, retention_ms, queue_ms, and `details` for a task that ends.
-- A shared crash can quarantine a task but never end it; a crash alone or too many losses can. A task that is interrupted
-- often is quarantined, too: if others break its worker, it gets through alone.
-- Returns `requeued` or `ended`.
local function requeue(id, cause, retry)
  local key = task_key(id)
  local h = redis.call('HMGET', key, 'crashes', 'losses', 'interruptions', 'vt')
  local crashes, losses, interruptions = tonumber(h[1] or 0), tonumber(h[2] or 0), tonumber(h[3] or 0)
  if cause == 'crash' or cause == 'crash_alone' then
    losses = losses + 1
    crashes = crashes + 1
    if crashes >= retry.max_crashes and cause == 'crash' then crashes = retry.max_crashes - 1 end
    redis.call('HINCRBY', STATS, 'crashes', 1)
  end
  if cause == 'interruption' then
    interruptions = interruptions + 1
    redis.call('HINCRBY', STATS, 'interruptions', 1)
  end
  redis.call('HSET', key, 'crashes', crashes, 'losses', losses, 'interruptions', interruptions)
  if crashes >= retry.max_crashes or losses >= retry.max_losses or interruptions >= retry.max_interruptions then
    redis.call('HSET', key, 'details', retry.details)
    finish(id, 'Error', retry.retention_ms)
    return 'ended'
  end
  redis.call('ZREM', LEASED, id)
  redis.call('SREM', EXCLUSIVE, id)
  redis.call('HSET', key, 'status', 'Pending')
  local quarantined = crashes >= retry.max_crashes - 1 or 2 * interruptions >= retry.max_interruptions
  -- It was leased before, so it is not behind the clock.
  local vt = clamp(tonumber(h[4]), 0, tonumber(redis.call('GET', CLOCK) or 0))
  redis.call('ZADD', quarantined and QUARANTINED or QUEUED, score(vt), id)
  if quarantined then stop_the_clock(id, retry.queue_ms) end
  redis.call('HINCRBY', STATS, 'requeued', 1)
  tell_watchers(id)
  wake()
  return 'requeued'
end
