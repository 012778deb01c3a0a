-- Reads one page of the keys that limit live tasks, and one page of the numbers that operators have set.
-- ARGV: cursor of the keys, cursor of operators' numbers ('0' = begin, '' = read none)
-- returns: {TIME (ms), next cursor of the keys ('' = end), {{key, live tasks, running, numbers or '', name or ''}, …},
--           {name or key, numbers and version, …}, next cursor of operators' numbers ('' = end)}
--   numbers: `<concurrency> <interval (µs)> <tolerance (µs)>`, and name: those that apply to a running task; '' if no task runs.
-- use: time record lanes
local function page_of(key, cursor)
  if cursor == '' then return {}, '' end
  local page = redis.call('HSCAN', key, cursor, 'COUNT', 100)
  return page[2], page[1] == '0' and '' or page[1]
end

local function numbers(key)
  local id = redis.call('ZRANGE', SLOTS .. key, 0, 0)[1]
  for _, limit in ipairs(id and limits_of(id) or {}) do
    if limit.key == key then return limit.most .. ' ' .. digits(limit.interval) .. ' ' .. digits(limit.tolerance), limit.name end
  end
  return '', ''
end

local keys = {}
local rows, keys_left = page_of(LIMITED, ARGV[1])
for i = 1, #rows, 2 do
  local key = rows[i]
  keys[#keys + 1] = {key, rows[i + 1], redis.call('ZCARD', SLOTS .. key), numbers(key)}   -- numbers and name
end
local set, set_left = page_of(LIMITS, ARGV[2])
return {digits(now), keys_left, keys, set, set_left}
