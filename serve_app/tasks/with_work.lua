-- Which queues have tasks that wait. queue ...
local queues = {}
for i = 3, #ARGV do
  enter(ARGV[i])
  if redis.call('EXISTS', QUEUED, QUARANTINED) > 0 then queues[#queues + 1] = QUEUE end
end
return queues
