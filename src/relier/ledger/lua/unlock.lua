-- Releases a lock for its holder, without a result. A result that is already there stays.
-- ARGV: key, token
-- returns: ok | stale (another caller holds it, or it already has a result) | missing
-- use: hold
local key = LOCK .. ARGV[1]
local said, hold = own_hold(key, ARGV[2])
if said ~= 'ok' then return said end
if hold.state ~= 'held' then return 'stale' end
redis.call('DEL', key)
return 'ok'
