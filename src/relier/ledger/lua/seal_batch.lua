-- Seals an open batch: its producer has added all members. If all of them have ended, the batch ends now.
-- ARGV: id, abandoned ('1': its producer did not add all members, so `then` must never run; otherwise '')
-- returns: {'ok' | 'repeat' | 'abandoned' | 'missing', state}   abandoned: the lease had already run out
-- use: close batch workflow
local g = batch_of(ARGV[1])
if not g then return {'missing', ''} end
if g.abandoned and ARGV[2] == '' then return {'abandoned', g.state} end
if g.state ~= 'open' then return {'repeat', g.state} end
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
seal(g, ARGV[2] == '1')
close()
return {'ok', g.state}
