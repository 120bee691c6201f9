-- Which lanes have tasks that wait. lane ...
local found = {}
for i = 3, #ARGV do
  enter(ARGV[i])
  if redis.call('EXISTS', QUEUED, SUSPECTS) > 0 then found[#found + 1] = LANE end
end
return found
