-- Returns facts about keys and their owners, as of one moment. Reads only.
-- ARGV: per key: its kind (see ledger/keys.py; 'boot' for a member of `boots`, `leases`, `helpers` or `helper_leases`),
--       its subject, such as a task id or a queue ('' none), the key
-- returns: per key {type, time to live (ms; -1 none), fact, …}   the facts, by kind:
--   task                               its state (see lib/home.lua), the index it belongs in, its score there ('' none), is it a join
--                                      that has checked for its parts and still waits ('1' or ''), is it a live member of a batch
--                                      that is gone ('1' or ''), slots that it should hold but does not
--   batch                              its state, members that have not ended by its counts, and by `members`, is it in `batches`
--                                      or inside another one ('1' or '')
--   members, plans, results            the state of their batch ('' none)
--   more, history, checkpoint, steps   the state of its task
--   ready, bell                        is its queue in `queues` ('1' or ''), its length
--   owned, worker, asked               the end of its node's lease ('' not registered)
--   boot                               for a worker: the end and the length of its lease, does it have a hash ('' no); for a helper: the end
--                                      and the length of its lease
--   idem                               its value, the state of the task in it, the key that this task holds
--   schedule                           its state ('' unreadable), its score in the index of its group ('' none), its group
--   fires                              does its schedule exist ('1' or '')
--   planned (a member of an index of schedules)   its score there, the index that its record belongs in ('' none), does it have a key ('1' or '')
--   lane                               its state in `lanes` ('' not listed)
--   sleepers                           is its queue in `sleeping` ('1' or '')
-- and, for members and fields of keys, given with the key that holds them:
--   lane_state (of lanes)              its state, is its head in the queue or in `due` ('1' or ''), its length, score of its first task,
--                                      its score in `sleepers`
--   sleeper (of sleepers)              its score there ('' no longer), its state in `lanes`
--   slot (of slots)                    its score there ('' no longer), the state of its task, that task's fence
--   pacer (of pacers)                  the id ('' no longer), is it in `due` ('1' or '')
-- use: record spec home schedule_record
local function size(command, key) return ask(command, key) or 0 end

local function live(state) return state == 'scheduled' or state == 'queued' or state == 'running' end

local function slots_missing(id, r)
  local missing = 0
  for _, key in ipairs(r.state == 'running' and limit_keys(id, r) or {}) do
    if ask('ZSCORE', SLOTS .. key, id) ~= r.fence then missing = missing + 1 end
  end
  return missing
end

local function of_task(id)
  local r = read(id)
  local home = home_of(id, r)
  local waits = r.state == 'scheduled' and r.fence ~= '0' and has(r, 's') and with_spec(r).name == 'relier.chord'
  local batch = r.state and has(r, 'b') and (ask('HGET', MORE .. id, 'batch') or '')
  local lost = batch and live(r.state) and redis.call('EXISTS', BATCH .. string.match(batch, '^%S*')) == 0
  return what(r), home and string.sub(home, #P + 1) or '', home and ask('ZSCORE', home, id) or '', waits and '1' or '',
    lost and '1' or '', slots_missing(id, r)
end

local function of_batch(id)
  local v = ask('HMGET', BATCH .. id, 'state', 'size', 'done', 'dead', 'cancelled', 'parent') or {}
  local left = (v[2] or 0) - (v[3] or 0) - (v[4] or 0) - (v[5] or 0)
  local live_ones = ask('ZCOUNT', MEMBERS .. id, '-inf', '(' .. digits(2 * MEMBER_SPAN)) or 0
  return v[1] or '', left, live_ones, (v[6] or ask('ZSCORE', BATCHES, id)) and '1' or ''
end

local function beside_batch(id) return ask('HGET', BATCH .. id, 'state') or '' end

local function side(id) return what(read(id)) end
local function of_boot(boot) return ask('ZSCORE', BOOTS, boot) or '' end
local function of_queue(queue) return ask('SISMEMBER', QUEUES, queue) == 1 and '1' or '' end

local facts = {
  task = of_task, more = side, history = side, checkpoint = side, steps = side,
  batch = of_batch, members = beside_batch, plans = beside_batch, results = beside_batch,
  owned = of_boot, worker = of_boot, asked = of_boot,
  ready = function(queue, key) return of_queue(queue), size('ZCARD', key) end,
  bell = function(queue, key) return of_queue(queue), size('LLEN', key) end,
  boot = function(boot)
    return of_boot(boot), ask('ZSCORE', LEASES, boot) or '', redis.call('EXISTS', WORKER .. boot) == 1 and '1' or '',
      ask('ZSCORE', HELPERS, boot) or '', ask('ZSCORE', HELPER_LEASES, boot) or ''
  end,
  schedule = function(name)
    local s = read_schedule(name)
    if not s then return '', '', '' end
    return s.state, ask('ZSCORE', SCHEDULES .. s.group, name) or '', s.group
  end,
  fires = function(name) return redis.call('EXISTS', SCHEDULE .. name) == 1 and '1' or '' end,
  planned = function(name, index)
    local s = read_schedule(name)
    return ask('ZSCORE', index, name) or '', s and SCHEDULES .. s.group or '', redis.call('EXISTS', SCHEDULE .. name) == 1 and '1' or ''
  end,
  lane = function(lane) return ask('HGET', LANES, lane) or '' end,
  sleepers = function(of)
    local key, queue = string.match(of, '^(%S+) (.*)$')
    return key and ask('SISMEMBER', SLEEPING .. key, queue) == 1 and '1' or ''
  end,
  lane_state = function(lane)
    local state, queue = ask('HGET', LANES, lane) or '', string.match(lane, '^%S+ (.*)$') or ''
    local id, key = string.match(state, '^%+(.*)$'), string.match(state, '^%-(.*)$')
    local placed = id and (ask('ZSCORE', READY .. queue, id) or ask('ZSCORE', DUE, id)) and '1' or ''
    local first = ask('ZRANGE', LANE .. lane, 0, 0, 'WITHSCORES') or {}
    return state, placed, size('ZCARD', LANE .. lane), first[2] or '', key and ask('ZSCORE', SLEEPERS .. key .. ' ' .. queue, lane) or ''
  end,
  sleeper = function(lane, key) return ask('ZSCORE', key, lane) or '', ask('HGET', LANES, lane) or '' end,
  slot = function(id, key)
    local r = read(id)
    return ask('ZSCORE', key, id) or '', what(r), r.fence or ''
  end,
  pacer = function(field, key)
    local id = ask('HGET', key, field) or ''
    return id, ask('ZSCORE', DUE, id) and '1' or ''
  end,
  idem = function(_, key)
    local value = ask('GET', key) or ''
    local id = string.match(value, '^(%S+)') or ''
    return value, what(read(id)), ask('HGET', MORE .. id, 'key') or ''
  end,
}

local found = {}
for i = 1, #ARGV, 3 do
  local kind, of, key = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local tell = facts[kind]
  found[#found + 1] = {redis.call('TYPE', key).ok, redis.call('PTTL', key)}
  if tell then
    for _, fact in ipairs({tell(of, key)}) do table.insert(found[#found], fact) end
  end
end
return found
