-- Creates a batch without members: an open batch, to which its producer adds tasks, or a sealed one, which ends at once.
-- ARGV: id, header (see lib/batch.lua), as MessagePack
-- returns: {'ok' | 'repeat', state}
-- use: close batch workflow
local id = ARGV[1]
local known = batch_of(id)
if known then return {'repeat', known.state} end
create_batch(cmsgpack.unpack(ARGV[2]))
local g = batch_of(id)
settle_batch(g)
close()
return {'ok', g.state}
