-- Which queues have tasks that wait. queue ...
local found = {}
for i = 3, #ARGV do
  enter(ARGV[i])
  if redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then found[#found + 1] = QUEUE end
end
return found
