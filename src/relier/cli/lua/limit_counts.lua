-- Counts the running tasks of some limit keys. Reads only.
-- ARGV: limit key, …
-- returns: {running, …}
local found = {}
for i, key in ipairs(ARGV) do found[i] = redis.call('ZCARD', SLOTS .. key) end
return found
