-- The sweep that finds nothing, in one straight line: nearly every one. What the others need is not even set up for it.
-- use: tick
local sweeps = ARGV[4] == ''
local _, sure = tick(sweeps and tonumber(ARGV[3]), sweeps)
if sweeps and redis.call('ZCOUNT', BOOTS, '-inf', sure) == 0 then return {{}, 0, 0, 0} end
