-- Repairs lanes and slots after another program changed keys in the store: a head that is not in its queue, a lane that sleeps on a limit
-- with room, a slot of a task that does not run. One call checks some lanes and keys, and stores its cursors for the next call.
-- use: record close lanes
local function sorted_page(key, field)
  local page = redis.call('HSCAN', key, redis.call('HGET', META, field) or '0', 'COUNT', 50)
  redis.call('HSET', META, field, page[1])
  local names = {}
  for i = 1, #page[2], 2 do names[#names + 1] = page[2][i] end
  table.sort(names)
  return names
end

local function tidy_slots(key)
  for _, id in ipairs(redis.call('ZRANGE', SLOTS .. key, 0, 99)) do
    if read(id).state ~= 'running' then
      redis.call('ZREM', SLOTS .. key, id)
      count('slots_freed')
    end
  end
end

local function tidy_lane(lane)
  local queue, state = string.match(lane, '^%S+ (.*)$'), redis.call('HGET', LANES, lane)
  local id, first = string.match(state or '', '^%+(.*)$'), first_in(lane)
  if id then
    if redis.call('ZSCORE', READY .. queue, id) or redis.call('ZSCORE', DUE, id) then return end
    for key in string.gmatch(string.match(lane, '^%S+'), '[^,]+') do
      if redis.call('HGET', PACERS, key .. ' ' .. queue) == id then redis.call('HDEL', PACERS, key .. ' ' .. queue) end
    end
  else
    local key = string.sub(state or '-', 2)
    for _, limit in ipairs(first and limits_of(first) or {}) do
      local paced = limit.interval > 0 and redis.call('HEXISTS', PACERS, key .. ' ' .. queue) == 1
      if limit.key == key and (is_full(limit) or paced) then return end
    end
    sleep_no_more(lane, key, queue)
  end
  awake(lane, queue)
  count('lanes_woken')
end

local function tidy_lanes()
  if redis.call('EXISTS', LIMITED) == 0 and redis.call('EXISTS', LANES) == 0 then return end
  for _, key in ipairs(sorted_page(LIMITED, 'slots_tidied')) do tidy_slots(key) end
  for _, lane in ipairs(sorted_page(LANES, 'lanes_tidied')) do tidy_lane(lane) end
end
