-- Extends a worker's lease: one write per worker, however many tasks it runs. A late heartbeat still counts if no sweep has
-- declared the boot lost yet.
-- ARGV: boot, lease (ms), time of the last claim poll as the worker tells it (ms; '' unknown)
-- returns: {'ok', owned tasks, {'<id> <fence>' asked to cancel, …}} | {'gone'}   of more than 1,000 some now, the others later
-- use: time tick
local ledger_now = tick(math.floor(ARGV[2] / 4))   -- the interval between two heartbeats
local lease = redis.call('ZSCORE', BOOTS, ARGV[1])
if not lease or lease == '0' then return {'gone'} end
redis.call('ZADD', BOOTS, ledger_now + ARGV[2], ARGV[1])
redis.call('HSET', WORKER .. ARGV[1], 'beat', now, 'polled', ARGV[3])
return {'ok', redis.call('ZCARD', OWNED .. ARGV[1]), redis.call('SRANDMEMBER', ASKED .. ARGV[1], 1000)}
