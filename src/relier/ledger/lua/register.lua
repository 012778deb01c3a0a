-- Registers a worker's boot: a new random id for each start of a process. A repeat extends its lease. A boot that was declared
-- lost stays lost.
-- ARGV: boot, lease (ms), what it says of itself (JSON)
-- returns: 'ok' | 'gone'
-- use: time tick
local ledger_now = tick()
if redis.call('ZSCORE', BOOTS, ARGV[1]) == '0' then return 'gone' end
redis.call('ZADD', BOOTS, ledger_now + ARGV[2], ARGV[1])
redis.call('ZADD', LEASES, ARGV[2], ARGV[1])
redis.call('HSET', WORKER .. ARGV[1], 'about', ARGV[3], 'registered', now, 'beat', now)
reclamp()
return 'ok'
