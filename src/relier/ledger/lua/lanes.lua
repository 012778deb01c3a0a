-- Reads one page of the lanes with waiting tasks (lib/lanes.lua), of one queue or of all. A page may be empty before the end.
-- ARGV: queue ('' = all), cursor ('0' = begin)
-- returns: {next cursor ('' = end), {lane, '+<id of its head>' or '-<key it sleeps on>', number of tasks in LANE, score of the last
--             one ('' = none)}, …}
local page = redis.call('HSCAN', LANES, ARGV[2], 'COUNT', 100)
local answer = {page[1] == '0' and '' or page[1]}
for i = 1, #page[2], 2 do
  local lane = page[2][i]
  if ARGV[1] == '' or string.match(lane, '^%S+ (.*)$') == ARGV[1] then
    local last = redis.call('ZRANGE', LANE .. lane, -1, -1, 'WITHSCORES')[2]
    answer[#answer + 1] = {lane, page[2][i + 1], redis.call('ZCARD', LANE .. lane), last or ''}
  end
end
return answer
