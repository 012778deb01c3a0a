-- Lists outermost batches: first running ones, then ended ones, beginning with the one that is kept longest.
-- ARGV: cursor ('' = begin, else '<score> <id>'), max batches
-- returns: {next cursor ('' the end), {id, score, {field, value, …}}, …}
-- use: record
local score, after = string.match(ARGV[1], '^(%S+) (.+)$')
local from, most = 0, tonumber(ARGV[2])
if score then
  local rank = redis.call('ZREVRANK', BATCHES, after)
  from = rank and rank + 1 or redis.call('ZCOUNT', BATCHES, '(' .. score, '+inf')
end
local rows = redis.call('ZREVRANGE', BATCHES, from, from + most - 1, 'WITHSCORES')
local answer = {#rows < 2 * most and '' or rows[#rows] .. ' ' .. rows[#rows - 1]}
for i = 1, #rows, 2 do answer[#answer + 1] = {rows[i], rows[i + 1], ask('HGETALL', BATCH .. rows[i]) or {}} end
return answer
