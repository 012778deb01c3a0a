-- Extends a node's lease: one write per worker, however many tasks it runs. A late heartbeat still counts if no sweep has
-- declared the node lost yet.
-- ARGV: boot (node id), lease (ms), time of the last claim poll as the worker reports it (ms; '' unknown), the worker's report (JSON; '' unchanged)
-- returns: {'ok', owned tasks, {'<id> <fence>' asked to cancel, …}, orders, if there are any: see order.lua} | {'gone'}
--          If more than 1,000 were asked to cancel, later heartbeats return the others.
-- use: time clock tick
local boot, interval = ARGV[1], math.floor(ARGV[2] / 4)   -- the interval between two heartbeats
local known = redis.call('HMGET', WORKER .. boot, 'role', 'order')
local helper = known[1] and known[1] ~= 'worker'
local ledger_now = helper and read_clock(CLOCK) or tick(interval)
local lease = redis.call('ZSCORE', BOOTS, boot)
if not lease or lease == '0' then return {'gone'} end
if helper then redis.call('ZADD', HELPERS, advance(HELPER_CLOCK, interval) + ARGV[2], boot) end
redis.call('ZADD', BOOTS, ledger_now + ARGV[2], boot)
redis.call('HSET', WORKER .. boot, 'beat', now, 'polled', ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', WORKER .. boot, 'report', ARGV[4]) end
return {'ok', redis.call('ZCARD', OWNED .. boot), redis.call('SRANDMEMBER', ASKED .. boot, 1000), known[2] or nil}
