-- Reads what the ledger knows about some nodes, in the form of stats.lua. Reads only.
-- ARGV: node id, …
-- returns: {{node id, lease left (ms), owned, about, beat, polled, registered, role, report, orders}, …}, without nodes that are gone
-- use: record clock
local ledger_now = read_clock(CLOCK)
local helpers_now = read_clock(HELPER_CLOCK)
local found = {}
for _, id in ipairs(ARGV) do
  local ends = redis.call('ZSCORE', BOOTS, id)
  if ends then
    local node = redis.call('HMGET', WORKER .. id, 'about', 'beat', 'polled', 'registered', 'role', 'report', 'order')
    local helps = redis.call('ZSCORE', HELPERS, id)
    local left = helps and helps - helpers_now or ends - ledger_now
    for field = 1, 7 do node[field] = node[field] or '' end
    found[#found + 1] = {id, digits(left), redis.call('ZCARD', OWNED .. id), unpack(node)}
  end
end
return found
