-- Holds back tasks that are limited at run time (flag l). `more` of such a task has its limits, one per line:
--   <name> <key> <concurrency, 0 = any> <interval between starts (µs), 0 = no rate> <tolerance (µs)>
-- An operator's numbers for the key or the name (LIMITS) replace those of the task.
--   A slot belongs to a running task: SLOTS of each of its keys holds its id. Every move that takes a task from its worker frees its
--   slots.
--   A lane is the tasks of one queue that have the same keys: `<key>,<key> <queue>`. Only the first task of a lane, its head, is in
--   the queue's index, so the backlog of one lane never delays the tasks of others. LANES has, for every lane with waiting tasks:
--     +<id>   the head is in the queue or, if it waits for a rate, in `due`. The other tasks wait in LANE
--     -<key>  the lane sleeps on this limit. All its tasks wait in LANE, and it is listed in SLEEPERS of the key and the queue
--   A lane sleeps on a limit that is full, or on a rate for which the head of another lane waits in `due` (PACERS). A freed slot wakes
--   one sleeping lane of each queue: the one whose first task is the oldest. A start under a rate does the same. A head that leaves its
--   queue without a start wakes another lane in its place.
-- use: record spec close
local MOST_QUEUES = 8   -- one freed slot wakes a lane in at most this many queues; tidy_lanes finds the others

-- Returns the limits of a task as they apply now.
local function limits_of(id)
  local limits, names = {}, {}
  for name, key, most, interval, tolerance in
    string.gmatch(ask('HGET', MORE .. id, 'limits') or '', '(%S+) (%S+) (%d+) (%d+) (%d+)') do
    limits[#limits + 1] = {name = name, key = key, most = tonumber(most), interval = tonumber(interval), tolerance = tonumber(tolerance)}
    names[#names + 1] = key
    names[#names + 1] = name
  end
  local set = #names > 0 and redis.call('HMGET', LIMITS, unpack(names)) or {}
  for i, limit in ipairs(limits) do
    local most, interval, tolerance = string.match(set[2 * i - 1] or set[2 * i] or '', '^(%d+) (%d+) (%d+) ')
    if most then limit.most, limit.interval, limit.tolerance = tonumber(most), tonumber(interval), tonumber(tolerance) end
  end
  return limits
end

local function lane_of(limits, queue)
  local keys = {}
  for i, limit in ipairs(limits) do keys[i] = limit.key end
  return table.concat(keys, ',') .. ' ' .. queue
end

local function is_full(limit) return limit.most > 0 and redis.call('ZCARD', SLOTS .. limit.key) >= limit.most end

local function first_full(limits)
  for _, limit in ipairs(limits) do
    if is_full(limit) then return limit.key end
  end
end

local function first_in(lane)
  local row = redis.call('ZRANGE', LANE .. lane, 0, 0, 'WITHSCORES')
  return row[1], row[2]
end

-- Adds a task to its lane, and counts it among the tasks that wait in lanes of its queue (WAITING).
local function wait_in(lane, queue, score, id)
  if redis.call('ZADD', LANE .. lane, score, id) == 1 then redis.call('HINCRBY', WAITING, queue, 1) end
end

-- Undoes wait_in. Returns whether the task was in its lane.
local function wait_no_more(lane, queue, id)
  local was = redis.call('ZREM', LANE .. lane, id) == 1
  if was and redis.call('HINCRBY', WAITING, queue, -1) <= 0 then redis.call('HDEL', WAITING, queue) end
  return was
end

-- Puts a lane with waiting tasks to sleep, in the order of its first task.
local function sleep(lane, key, queue)
  local _, score = first_in(lane)
  redis.call('HSET', LANES, lane, '-' .. key)
  redis.call('ZADD', SLEEPERS .. key .. ' ' .. queue, score, lane)
  redis.call('SADD', SLEEPING .. key, queue)
end

local function sleep_no_more(lane, key, queue)
  redis.call('ZREM', SLEEPERS .. key .. ' ' .. queue, lane)
  if redis.call('EXISTS', SLEEPERS .. key .. ' ' .. queue) == 0 then redis.call('SREM', SLEEPING .. key, queue) end
end

-- Puts a task into its queue as the head of its lane.
local function lead(lane, queue, id, score)
  redis.call('HSET', LANES, lane, '+' .. id)
  redis.call('ZADD', READY .. queue, score, id)
  ring(queue)
end

-- Makes the first waiting task of a lane its head. If no task waits, removes the lane.
local function awake(lane, queue)
  local id, score = first_in(lane)
  if id then
    wait_no_more(lane, queue, id)
    lead(lane, queue, id, score)
  else
    redis.call('HDEL', LANES, lane)
  end
end

-- Wakes one lane of a queue that sleeps on a limit: the one whose first task is the oldest.
local function wake_one(key, queue)
  local lane = redis.call('ZRANGE', SLEEPERS .. key .. ' ' .. queue, 0, 0)[1]
  if lane then
    sleep_no_more(lane, key, queue)
    awake(lane, queue)
  end
end

local function wake(key)
  for _, queue in ipairs(redis.call('SRANDMEMBER', SLEEPING .. key, MOST_QUEUES)) do wake_one(key, queue) end
end

-- For each of the head's limits that has room, wakes one sleeping lane. Skips `but`, the limit that the head waits for.
local function pass_on(limits, queue, but)
  for _, limit in ipairs(limits) do
    if limit.key ~= but and not is_full(limit) then wake_one(limit.key, queue) end
  end
end

-- Notes that a head no longer waits in `due` for a rate.
local function pace_no_more(id, limits, queue)
  for _, limit in ipairs(limits) do
    local field = limit.key .. ' ' .. queue
    if redis.call('HGET', PACERS, field) == id then redis.call('HDEL', PACERS, field) end
  end
end

-- Makes the next task of a lane the head after the old head left, or puts the lane to sleep. Returns whether the lane has a head.
local function succeed(lane, queue)
  local id = first_in(lane)
  local key = id and first_full(limits_of(id))
  if key then
    sleep(lane, key, queue)
    return false
  end
  awake(lane, queue)
  return redis.call('HEXISTS', LANES, lane) == 1
end

-- Adds a queued task to its lane: as the head, in the queue, or behind the head. The first task by order becomes the head, unless
-- the current head waits for a rate.
local function enter_lane(id, r, score)
  local queue, limits = with_spec(r).queue, limits_of(id)
  local lane = lane_of(limits, queue)
  local state = redis.call('HGET', LANES, lane)
  local head = state and string.sub(state, 1, 1) == '+' and string.sub(state, 2)
  local place = head and head ~= id and redis.call('ZSCORE', READY .. queue, head)
  local key = not state and first_full(limits)
  if head == id or not state and not key then
    if head then pace_no_more(id, limits, queue) end
    lead(lane, queue, id, score)
  elseif place and score < tonumber(place) then
    redis.call('ZREM', READY .. queue, head)
    wait_in(lane, queue, place, head)
    lead(lane, queue, id, score)
  else
    wait_in(lane, queue, score, id)
    if not head then sleep(lane, key or string.sub(state, 2), queue) end
  end
end

-- Removes a waiting task from its lane. The caller removes it from its queue and from `due`.
local function leave_lane(id, r)
  local queue, limits = with_spec(r).queue, limits_of(id)
  local lane = lane_of(limits, queue)
  local state = redis.call('HGET', LANES, lane)
  if state == '+' .. id then
    pace_no_more(id, limits, queue)
    if not succeed(lane, queue) then pass_on(limits, queue) end
  elseif wait_no_more(lane, queue, id) and string.sub(state or '', 1, 1) == '-' then
    sleep_no_more(lane, string.sub(state, 2), queue)
    succeed(lane, queue)
  end
end

-- Frees the slots of a task that its worker no longer runs.
local function free_slots(id)
  for _, limit in ipairs(limits_of(id)) do
    if redis.call('ZREM', SLOTS .. limit.key, id) == 1 then wake(limit.key) end
  end
end

-- Counts the live tasks of each key.
local function count_limited(id, by)
  for key in string.gmatch(ask('HGET', MORE .. id, 'limits') or '', '%S+ (%S+) %d+ %d+ %d+') do
    if redis.call('HINCRBY', LIMITED, key, by) <= 0 then redis.call('HDEL', LIMITED, key) end
  end
end
