-- Sets the desired state of a node. The answer to its next heartbeat contains it, and the node conforms. It is a state, not a command,
-- so it does no harm if a node gets it twice or late.
-- ARGV: boot (node id), version seen ('0' = never ordered), draining ('1' | '0'), stopping ('1' | '0'), log level ('-' = its own)
-- returns: {'ok' | 'repeat' | 'conflict' | 'gone', '<version> <draining> <stopping> <log level>' as it is now ('' none)}
-- Stored as that text, in the field `order` of the node. It ends with the node.
local lease, key = redis.call('ZSCORE', BOOTS, ARGV[1]), WORKER .. ARGV[1]
if not lease or lease == '0' then return {'gone', ''} end
local order = redis.call('HGET', key, 'order') or ''
local version, state = string.match(order, '^(%d+) (.+)$')
local wanted = table.concat({ARGV[3], ARGV[4], ARGV[5]}, ' ')
if state == wanted then return {'repeat', order} end
if (version or '0') ~= ARGV[2] then return {'conflict', order} end
redis.call('HDEL', key, 'order')   -- even a full store accepts this write, and the next one
order = string.format('%.0f ', (version or 0) + 1) .. wanted
redis.call('HSET', key, 'order', order)
return {'ok', order}
