-- Extends a lock for its holder, which is still working.
-- ARGV: key, token, how long it counts from now on (ms)
-- returns: ok | stale (another holds it, or it has its result) | missing
-- use: hold
local key = LOCK .. ARGV[1]
local said, hold = own_hold(key, ARGV[2])
if said ~= 'ok' then return said end
if hold.state ~= 'held' then return 'stale' end
redis.call('PERSIST', key)   -- a full store accepts this command, and then the writes after it
write_hold(key, 'held', tonumber(ARGV[3]), hold.token, hold.holder, '')
return 'ok'
