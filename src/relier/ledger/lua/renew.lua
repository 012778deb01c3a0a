-- Extends a lock for its holder, which is still working.
-- ARGV: key, token, how long it is valid from now on (ms)
-- returns: ok | stale (another caller holds it, or it already has a result) | missing
-- use: hold
local key = LOCK .. ARGV[1]
local said, hold = own_hold(key, ARGV[2])
if said ~= 'ok' then return said end
if hold.state ~= 'held' then return 'stale' end
redis.call('PERSIST', key)   -- even a full store accepts this write, and the writes after it
write_hold(key, 'held', tonumber(ARGV[3]), hold.token, hold.holder, '')
return 'ok'
