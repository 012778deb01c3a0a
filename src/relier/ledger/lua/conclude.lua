-- Ends a lock with a result, for its holder: the mark keeps the result for a while.
-- ARGV: key, token, how long the result is valid (ms), result
-- returns: ok | repeat | stale (another caller holds it) | missing
-- use: hold
local key = LOCK .. ARGV[1]
local said, hold = own_hold(key, ARGV[2])
if said ~= 'ok' then return said end
if hold.state == 'done' then return 'repeat' end
redis.call('PERSIST', key)   -- even a full store accepts this write, and the writes after it
write_hold(key, 'done', tonumber(ARGV[3]), hold.token, hold.holder, ARGV[4])
return 'ok'
