-- Lists the tasks that a worker owns according to the ledger, by time of claim, up to 1,000 per call.
-- ARGV: boot (worker id), rank of the first
-- returns: {id, fence, id, fence, …}
-- use: record
local held, first = {}, tonumber(ARGV[2])
for _, id in ipairs(redis.call('ZRANGE', OWNED .. ARGV[1], first, first + 999)) do
  held[#held + 1] = id
  held[#held + 1] = read(id).fence or '0'
end
return held
