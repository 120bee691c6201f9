#!lua flags=no-writes
-- Answers the `queues` in which tasks wait. Arguments: queues
local a, non_empty = cjson.decode(ARGV[3]), {}
for _, queue in ipairs(a.queues) do
  enter(queue)
  if redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then non_empty[#non_empty + 1] = queue end
end
return cjson.encode({ queues = non_empty })
