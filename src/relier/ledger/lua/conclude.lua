-- Ends a lock with a result, for its holder: the mark holds the result for a while.
-- ARGV: key, token, how long the result counts (ms), result
-- returns: ok | repeat | stale (another holds it) | missing
-- use: hold
local key = LOCK .. ARGV[1]
local said, hold = own_hold(key, ARGV[2])
if said ~= 'ok' then return said end
if hold.state == 'done' then return 'repeat' end
redis.call('PERSIST', key)   -- a full store accepts this command, and then the writes after it
write_hold(key, 'done', tonumber(ARGV[3]), hold.token, hold.holder, ARGV[4])
return 'ok'
