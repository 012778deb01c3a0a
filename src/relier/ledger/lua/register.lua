-- Registers a node under its boot, an id that is new for each start of a process. A repeat extends its lease. A boot that was
-- declared lost stays lost, and a boot keeps its role. Workers' leases run on the ledger clock; those of helpers, the nodes of any other
-- role, on the helpers' clock. So their shorter leases do not change how the workers' clock treats an outage, and do not end
-- during one.
-- ARGV: boot (node id), lease (ms), what the node reports about itself (JSON), role,
--       orders carried over from an earlier boot ('' none; see order.lua)
-- returns: 'ok' | 'gone'
-- use: time clock tick tell
local boot, role = ARGV[1], ARGV[4]
local known = redis.call('ZSCORE', BOOTS, boot)
local function known_as_other()
  return known == '0' or known and (redis.call('HGET', WORKER .. boot, 'role') or 'worker') ~= role
end

if role == 'worker' then
  local ledger_now = tick()
  if known_as_other() then return 'gone' end
  redis.call('ZADD', BOOTS, ledger_now + ARGV[2], boot)
  redis.call('ZADD', LEASES, ARGV[2], boot)
  reclamp(CLOCK, LEASES)
else
  if known_as_other() then return 'gone' end
  local ends = advance(HELPER_CLOCK) + ARGV[2]
  redis.call('ZADD', HELPERS, ends, boot)
  redis.call('ZADD', HELPER_LEASES, ARGV[2], boot)
  reclamp(HELPER_CLOCK, HELPER_LEASES)
  redis.call('ZADD', BOOTS, read_clock(CLOCK) + ARGV[2], boot)
end
redis.call('HSET', WORKER .. boot, 'about', ARGV[3], 'registered', now, 'beat', now, 'role', role)
if ARGV[5] ~= '' then redis.call('HSETNX', WORKER .. boot, 'order', '1 ' .. ARGV[5]) end
if telling and not known then
  news('cluster', 'registered', boot, '', '', '', '', '')
  publish_all()
end
return 'ok'
