-- Repairs limits at run time: slots without a running task, and lanes that are missing from their list, lost their head, or are listed
-- under the wrong limit.
-- use: record lanes tidy_lanes mend mend_tasks
local function mend_slot(key, id)
  local score, r = redis.call('ZSCORE', SLOTS .. key, id), read(id)
  if not score or r.state == 'running' and r.fence == score then return end
  for _, limit in ipairs(r.state == 'running' and has(r, 'l') and limits_of(id) or {}) do
    if limit.key == key then return mend_slots(id, r) end
  end
  redis.call('ZREM', SLOTS .. key, id)
  wake(key)
  fixed('slot')
end

local function mend_asleep(lane, key, queue)
  local first, score = first_in(lane)
  local listed = redis.call('ZSCORE', SLEEPERS .. key .. ' ' .. queue, lane)
  if first and listed == score and redis.call('SISMEMBER', SLEEPING .. key, queue) == 1 then return end
  if first then
    sleep(lane, key, queue)
  else
    sleep_no_more(lane, key, queue)
    awake(lane, queue)
  end
  fixed('lane')
end

local function mend_lane(lane)
  local queue, state = string.match(lane, '^%S+ (.*)$'), redis.call('HGET', LANES, lane)
  local head, key = string.match(state or '', '^%+(.*)$'), string.match(state or '', '^%-(.*)$')
  if key then
    mend_asleep(lane, key, queue)
  elseif head and not redis.call('ZSCORE', READY .. queue, head) and not redis.call('ZSCORE', DUE, head) then
    tidy_lane(lane)
    fixed('lane')
  elseif not state and first_in(lane) then
    succeed(lane, queue)
    fixed('lane')
  end
end

local function mend_listed(_, lane) mend_lane(lane) end

-- The lane does not sleep on this limit. A freed slot would wake it in vain.
local function mend_sleeper(of, lane)
  local key, queue = string.match(of, '^(%S+) (.*)$')
  if not redis.call('ZSCORE', SLEEPERS .. of, lane) or redis.call('HGET', LANES, lane) == '-' .. key then return end
  sleep_no_more(lane, key, queue)
  fixed('lane')
end

-- Lanes wait for a rate behind a head that is not in `due`. The head of the next lane takes its place.
local function mend_pacer(_, field)
  local id = redis.call('HGET', PACERS, field)
  if not id or redis.call('ZSCORE', DUE, id) then return end
  redis.call('HDEL', PACERS, field)
  wake_one(string.match(field, '^(%S+) (.*)$'))
  fixed('lane')
end

-- The number of tasks that wait in the lanes of a queue. If there are too many lanes to count in one call, it stays unchanged.
local MOST_LANES = 1000
local function mend_waiting(_, queue)
  if redis.call('HLEN', LANES) > MOST_LANES then return end
  local waiting = 0
  local page = redis.call('HSCAN', LANES, 0, 'COUNT', 10 * MOST_LANES)
  if page[1] ~= '0' then return end
  for i = 1, #page[2], 2 do
    local lane = page[2][i]
    if string.match(lane, '^%S+ (.*)$') == queue then waiting = waiting + redis.call('ZCARD', LANE .. lane) end
  end
  if (redis.call('HGET', WAITING, queue) or '0') == digits(waiting) then return end
  if waiting > 0 then redis.call('HSET', WAITING, queue, waiting) else redis.call('HDEL', WAITING, queue) end
  fixed('lane')
end
