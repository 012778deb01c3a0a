-- What a boot holds according to the ledger.
-- ARGV: boot
-- returns: {id, fence, id, fence, …}
-- use: record
local held = {}
for _, id in ipairs(redis.call('ZRANGE', OWNED .. ARGV[1], 0, -1)) do
  held[#held + 1] = id
  held[#held + 1] = read(id).fence or '0'
end
return held
