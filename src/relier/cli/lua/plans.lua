-- Reads which tasks of a batch enter later: links of chains, and callbacks. Reads only.
-- ARGV: batch, most plans, longest plan to unpack (bytes)
-- returns: {{plan, the plan that follows it ('' none), id, name, id, name, … of its tasks}, …}, sorted by plan. A plan that is long or damaged has no tasks.
-- use: record
local function read_item(row, item)
  local extra = item[11] ~= '' and cmsgpack.unpack(item[11]) or {}
  for field = 2, #extra, 2 do
    if extra[field] == 'batch' then row[2] = string.match(extra[field + 1], '^%S+ %S+ (%S+)') or '' end
  end
  local name = string.match(item[10], '^[^\n]+\n[^\n]+\n([^\n]+)') or ''
  row[#row + 1] = item[1]
  row[#row + 1] = name
end

local names = ask('HKEYS', PLANS .. ARGV[1]) or {}
table.sort(names)
local found = {}
for n = 1, math.min(#names, tonumber(ARGV[2])) do
  local row = {names[n], ''}
  if redis.call('HSTRLEN', PLANS .. ARGV[1], names[n]) <= tonumber(ARGV[3]) then
    local sound, plan = pcall(cmsgpack.unpack, redis.call('HGET', PLANS .. ARGV[1], names[n]))
    for i = 2, sound and type(plan) == 'table' and #plan or 0 do pcall(read_item, row, plan[i]) end
  end
  if row[2] == '-' then row[2] = '' end
  found[n] = row
end
return found
