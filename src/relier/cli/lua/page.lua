-- Reads one page of an index in either direction, starting after a cursor that stays valid while tasks come and go. Reads only.
-- ARGV: index (due | ready | lane | owned | ended), of (queue, lane, worker id or state; '' for due), cursor ('' = begin, else '<score> <id>'),
--       max entries to read (at most LIST_PAGE), task name ('' = any; also the part of a longer name after its last dot), 'up' or 'down'
-- returns: {cursor ('' = end), {id, score, record without its payload ('corrupt'), {field, value, …}}, …}
-- use: record spec
local roots = {due = DUE, ready = READY, lane = LANE, owned = OWNED, ended = ENDED}
local index, most, wanted, down = roots[ARGV[1]] .. ARGV[2], math.min(tonumber(ARGV[4]), LIST_PAGE), ARGV[5], ARGV[6] == 'down'
local score, id = string.match(ARGV[3], '^(%S+) (.+)$')

-- Compares by bytes, as the index does. Lua's own comparison follows the server's locale.
local function comes_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- Returns how many entries come before the cursor, and whether its own entry is still there.
local function place()
  local rank = redis.call('ZRANK', index, id)
  if rank and redis.call('ZSCORE', index, id) == score then return rank, true end
  local low, high = redis.call('ZCOUNT', index, '-inf', '(' .. score), redis.call('ZCOUNT', index, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if comes_after(redis.call('ZRANGE', index, middle, middle)[1], id) then high = middle else low = middle + 1 end
  end
  return low, false
end

local size = redis.call('ZCARD', index)
local first, last = 0, size - 1
if score then
  local before, present = place()
  if down then last = before - 1 else first = before + (present and 1 or 0) end
end
if down then first = math.max(first, last - most + 1) else last = math.min(last, first + most - 1) end
if last < first then return {''} end

local rows = redis.call('ZRANGE', index, first, last, 'WITHSCORES')
local from, to, step = 1, #rows - 1, 2
if down then from, to, step = to, from, -step end
local more
if down then more = first > 0 else more = last < size - 1 end
local answer = {more and rows[to + 1] .. ' ' .. rows[to] or ''}

local function is_wanted(name) return wanted == '' or name == wanted or string.sub(name, -#wanted - 1) == '.' .. wanted end

for i = from, to, step do
  local r = read(rows[i])
  if r.state and is_wanted(with_spec(r).name) then
    answer[#answer + 1] = {rows[i], rows[i + 1], head(r), has(r, 'm') and ask('HGETALL', MORE .. rows[i]) or {}}
  elseif r.corrupt and wanted == '' then
    answer[#answer + 1] = {rows[i], rows[i + 1], 'corrupt', {}}
  end
end
return answer
