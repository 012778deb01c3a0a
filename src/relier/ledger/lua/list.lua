-- Reads one page of an index, in its order, starting after a cursor that stays valid while tasks come and go.
-- ARGV: index (due | ready | lane | owned | ended), of (queue, lane, worker id or state; '' for due), cursor ('' = begin, else
--       '<score> <id>'), max entries to read (at most LIST_PAGE), task name ('' = any)
-- returns: {cursor ('' = end), {id, record without its payload, {field, value, …}}, …}
-- use: record spec
local roots = {due = DUE, ready = READY, lane = LANE, owned = OWNED, ended = ENDED}
local index, most, wanted = roots[ARGV[1]] .. ARGV[2], math.min(tonumber(ARGV[4]), LIST_PAGE), ARGV[5]
local score, after = string.match(ARGV[3], '^(%S+) (.+)$')

-- Compares by bytes, as the index does. Lua's own comparison follows the server's locale.
local function comes_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- Returns where the page begins: right after the cursor's entry or, if that is gone, where it would be. Entries with the same
-- score are ordered by bytes, so a binary search finds the place however many there are.
local function begin()
  if not score then return 0 end
  local rank = redis.call('ZRANK', index, after)
  if rank and redis.call('ZSCORE', index, after) == score then return rank + 1 end
  local low, high = redis.call('ZCOUNT', index, '-inf', '(' .. score), redis.call('ZCOUNT', index, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if comes_after(redis.call('ZRANGE', index, middle, middle)[1], after) then high = middle else low = middle + 1 end
  end
  return low
end

local from = begin()
local rows = redis.call('ZRANGE', index, from, from + most - 1, 'WITHSCORES')
local answer = {#rows < 2 * most and '' or rows[#rows] .. ' ' .. rows[#rows - 1]}
for i = 1, #rows, 2 do
  local r = read(rows[i])
  if r.state and (wanted == '' or with_spec(r).name == wanted) then
    answer[#answer + 1] = {rows[i], head(r), has(r, 'm') and ask('HGETALL', MORE .. rows[i]) or {}}
  elseif r.corrupt and wanted == '' then
    answer[#answer + 1] = {rows[i], 'corrupt', {}}
  end
end
return answer
