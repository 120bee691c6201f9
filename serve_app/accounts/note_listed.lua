#!lua flags=allow-oom
-- Notes how many objects there are of each owner, before they are deleted; what was noted before stays.
-- erasure, then owner n ...
for i = 2, #ARGV, 2 do redis.call('HSETNX', ARGV[1], 'listed ' .. ARGV[i], ARGV[i + 1]) end
return 1
