-- Repairs records and their indexes: puts a record into the one index that its state requires, and removes entries without a record and
-- entries in the wrong index.
-- use: time record spec tell order notes lanes place corrupt mend
local ROOTS = {due = DUE, ready = READY, lane = LANE, owned = OWNED}

local function index_of(id, r)
  if r.state == 'scheduled' then return DUE end
  if r.state == 'running' then return OWNED .. r.owner end
  if r.state ~= 'queued' then return ENDED .. r.state end
  local queue = with_spec(r).queue
  local lane = has(r, 'l') and LANE .. lane_of(limits_of(id), queue)
  return lane and redis.call('ZSCORE', lane, id) and lane or READY .. queue
end

-- Declares an owner of tasks lost if it is not registered. The next sweep returns its tasks. If it is alive, its heartbeats are refused
-- already, so nothing changes for it.
local function mend_owner(boot)
  if redis.call('ZSCORE', BOOTS, boot) then return end
  redis.call('ZADD', BOOTS, 0, boot)
  if telling then news('cluster', 'lost', boot, '', '', '', '', 'not registered') end
  fixed('unowned')
end

-- Gives a running task the slots of its limits.
local function mend_slots(id, r)
  for _, limit in ipairs(has(r, 'l') and limits_of(id) or {}) do
    if redis.call('ZSCORE', SLOTS .. limit.key, id) ~= r.fence then
      redis.call('ZADD', SLOTS .. limit.key, r.fence, id)
      fixed('slot')
    end
  end
end

-- Returns how long to keep an ended record that is missing from its list: as long as if it had ended now.
local function end_of_life(id, r)
  with_spec(r)
  if r.state == 'dead' then
    if r.on_lost == 'hold' and noted(id, r, 'reason') == 'lost' then return '+inf' end
    return now + (r.dead_ttl or DEAD_TTL)
  end
  return now + math.max(r.result_ttl or RESULT_TTL, r.state == 'done' and r.key_ttl or 0)
end

-- The time at which a scheduled task was due is lost with its entry: it becomes due now.
local function put_back(id, r, home)
  if r.state == 'scheduled' then
    redis.call('ZADD', DUE, now, id)
  elseif r.state == 'queued' then
    with_spec(r)
    place(id, r, order(r.at, r.priority))
  elseif r.state == 'running' then
    redis.call('ZADD', home, r.moved, id)
  else
    redis.call('ZADD', home, end_of_life(id, r), id)
  end
  fixed(string.find(' done dead cancelled ', r.state, 1, true) and 'ended' or r.state)
end

local function mend_task(id)
  local r = read(id)
  if not r.state then return end
  local home = index_of(id, r)
  if not redis.call('ZSCORE', home, id) then put_back(id, r, home) end
  if r.state == 'running' then
    mend_owner(r.owner)
    mend_slots(id, r)
  end
  if (r.state == 'scheduled' or r.state == 'queued' or r.state == 'running') and redis.call('PTTL', TASK .. id) >= 0 then
    for _, key in ipairs({TASK, MORE, HISTORY, CHECKPOINT, STEPS}) do redis.call('PERSIST', key .. id) end
    fixed('expiry')
  end
end

-- Removes an entry from its index. The entry of a lane is counted, and a sleeping lane is listed by its first task.
local function drop_entry(kind, of, id)
  local index = ROOTS[kind] .. of
  if kind ~= 'lane' then
    redis.call('ZREM', index, id)
    return
  end
  local queue, state = string.match(of, '^%S+ (.*)$'), redis.call('HGET', LANES, of)
  if wait_no_more(of, queue, id) and string.sub(state or '', 1, 1) == '-' then
    sleep_no_more(of, string.sub(state, 2), queue)
    succeed(of, queue)
  end
end

-- An unreadable record stays where it is. The script that finds it there buries it.
local function mend_entry(of, id, kind)
  local index, r = ROOTS[kind] .. of, read(id)
  if r.corrupt or not redis.call('ZSCORE', index, id) or r.state and index_of(id, r) == index then return end
  drop_entry(kind, of, id)
  fixed('entry')
  if r.state then mend_task(id) else bury_corrupt(id, r) end
end
