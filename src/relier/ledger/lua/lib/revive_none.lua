-- The sweep that finds nothing, in one straight line: nearly every one. What the others need is not even set up for it.
-- use: tick
local _, sure = tick(tonumber(ARGV[3]))
if ARGV[4] == '' and redis.call('ZCOUNT', BOOTS, '-inf', sure) == 0 then return {{}, 0, 0, 0} end
