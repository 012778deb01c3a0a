-- What a boot holds according to the ledger, 1,000 tasks a call, by time of claim.
-- ARGV: boot, rank of the first
-- returns: {id, fence, id, fence, …}
-- use: record
local held, first = {}, tonumber(ARGV[2])
for _, id in ipairs(redis.call('ZRANGE', OWNED .. ARGV[1], first, first + 999)) do
  held[#held + 1] = id
  held[#held + 1] = read(id).fence or '0'
end
return held
