-- Extends the lease of an open batch, for its producer.
-- ARGV: id
-- returns: {'ok' | 'closed' | 'missing', state}
-- use: time batch
local g = batch_of(ARGV[1])
if not g then return {'missing', ''} end
if g.state ~= 'open' then return {'closed', g.state} end
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
redis.call('ZADD', BATCHES, now + g.lease, g.id)
return {'ok', g.state}
