-- Reads the numbers that apply to some limit keys: those of a running task or, if none runs, of a task that waits. Reads only.
-- ARGV: limit key, id of a task that may have this limit ('' = none is known), …
-- returns: {numbers ('' = unknown), name, …}   numbers: `<concurrency> <interval (µs)> <tolerance (µs)>`
-- use: record lanes
local function waiting_on(key)
  local queue = redis.call('SRANDMEMBER', SLEEPING .. key)
  local lane = queue and redis.call('ZRANGE', SLEEPERS .. key .. ' ' .. queue, 0, 0)[1]
  return lane and first_in(lane)
end

local found = {}
for i = 1, #ARGV, 2 do
  local key, known = ARGV[i], ARGV[i + 1] ~= '' and ARGV[i + 1]
  local id = redis.call('ZRANGE', SLOTS .. key, 0, 0)[1] or waiting_on(key) or known
  found[i], found[i + 1] = '', ''
  for _, limit in ipairs(id and limits_of(id) or {}) do
    if limit.key == key then
      found[i], found[i + 1] = limit.most .. ' ' .. digits(limit.interval) .. ' ' .. digits(limit.tolerance), limit.name
    end
  end
end
return found
