-- Creates batches and adds members. A batch is a hash with these fields:
--   state                     open | sealed | ended
--   size, done, dead, cancelled   counts of its members
--   collects                  '' = keeps no results, '1' = keeps its members' results, 'last' = represents a chain and keeps its last result
--   stopped, abandoned        '1' = was cancelled as a whole; '1' = its producer stopped before it had added all members
--   parent, root              the words of this batch as a member (see below); the outermost batch
--   fired                     letters of the callbacks that were queued: t then, f on_failure, c on_complete
--   failed                    the first task that failed
--   then_id, name, created, ended, lease, result_ttl, dead_ttl
--   tasks, tasks_done, tasks_dead, tasks_cancelled   only in the outermost batch
-- A member is a task, or an inner batch (`@<id>`). A task stores five words in its field `batch`, an inner batch in `parent`:
-- `<batch> <place> <next> <input> <tasks>`. next: the plan to submit once the member is done. input: the field of RESULTS that the
-- member takes; it is removed once the member is done. tasks: how many tasks the member adds to the workflow; '-' = it follows
-- another member at the same place, and is not counted again.
-- The score in MEMBERS is place + stage * 2 * MEMBER_SPAN, and MEMBER_SPAN more for an inner batch. Stages: 0 live, 1 done, 2 dead,
-- 3 cancelled.
-- A batch is complete once it is sealed and all its members have ended.
-- use: time record tell
local STAGES = {done = 1, dead = 2, cancelled = 3}
local MEMBER = '^(%S+) (%S+) (%S+) (%S+) (%S+)$'

local function batch_of(id)
  local v = ask('HMGET', BATCH .. id, 'state', 'size', 'done', 'dead', 'cancelled', 'collects', 'stopped', 'abandoned', 'parent',
    'root', 'fired', 'failed', 'lease', 'result_ttl', 'dead_ttl', 'name')
  if not v or not v[1] then return nil end
  return {id = id, state = v[1], size = tonumber(v[2] or 0), done = tonumber(v[3] or 0), dead = tonumber(v[4] or 0),
    cancelled = tonumber(v[5] or 0), collects = v[6] and v[6] ~= '', stopped = v[7] == '1', abandoned = v[8] == '1', parent = v[9],
    root = v[10], fired = v[11] or '', failed = v[12], lease = tonumber(v[13]), result_ttl = tonumber(v[14]),
    dead_ttl = tonumber(v[15]), name = v[16] or ''}
end

-- Returns whether the batch, or an outer batch, was cancelled.
local function is_stopped(g)
  while g and not g.stopped do g = g.parent and batch_of(string.match(g.parent, '^%S+')) end
  return g ~= nil and g ~= false
end

-- Counts a new member, and returns its place. '-' asks for a new place, '=' for the place `at` of the member that it follows.
local function count_in(g, place, tasks, at)
  if place == '=' then place = at end
  if tasks ~= '-' then
    local size = redis.call('HINCRBY', BATCH .. g.id, 'size', 1)
    if tasks ~= '0' then redis.call('HINCRBY', BATCH .. g.root, 'tasks', tasks) end
    if place == '-' then place = digits(ADDED_PLACE + size) end
    if g.state == 'open' then redis.call('ZADD', BATCHES, now + g.lease, g.id) end
  end
  return place
end

-- Creates a batch from its header: {id, state, collects, name, parent, lease (ms), result_ttl, dead_ttl ('-' = default), plan name,
-- plan, …}. A header {id, 'plans', plan name, plan, …} only adds plans to an existing batch.
local function create_batch(h, at)
  local id, root = h[1], h[1]
  local exists = redis.call('EXISTS', BATCH .. id) == 1
  if h[2] == 'plans' then
    for i = 3, exists and #h or 0, 2 do redis.call('HSET', PLANS .. id, h[i], h[i + 1]) end
    return
  end
  if exists then return end
  local parent = h[5] ~= '' and h[5] or nil
  if parent then
    local of, place, next, input, tasks = string.match(parent, MEMBER)
    local g = batch_of(of)
    if not g then return end
    root, place = g.root, count_in(g, place, tasks, at)
    parent = table.concat({of, place, next, input, tasks}, ' ')
    redis.call('ZADD', MEMBERS .. of, MEMBER_SPAN + place, '@' .. id)
    redis.call('HSET', BATCH .. id, 'parent', parent)
  end
  if h[2] == 'open' or not parent then redis.call('ZADD', BATCHES, h[2] == 'open' and now + h[6] or '+inf', id) end
  redis.call('HSET', BATCH .. id, 'state', h[2], 'collects', h[3], 'name', h[4], 'root', root, 'created', now, 'lease', h[6],
    'result_ttl', h[7], 'dead_ttl', h[8])
  if telling then news('batches', h[2], id, h[4], '', h[2], '', '') end
  for i = 9, #h, 2 do redis.call('HSET', PLANS .. id, h[i], h[i + 1]) end
end

-- Returns whether a batch accepts a member now. Any caller may add to an open batch. Only its own running members may add to a sealed
-- batch: it cannot end before they do.
local function takes(g, task, fence, boot)
  if g.abandoned or g.state == 'ended' or is_stopped(g) then return false end
  if g.state == 'open' then return true end
  local r = task ~= '-' and read(task)
  local mine = r and r.state == 'running' and r.fence == fence and r.owner == boot and ask('HGET', MORE .. task, 'batch')
  return mine and string.match(mine, '^%S+') == g.id
end

-- Returns the refusal if the batch does not accept a new task, or nil. `words`: see item.lua. `opened`: records which batches this
-- call creates.
local function refuses(id, words, opened)
  local of, how, parent, task, fence, boot = string.match(words, '^member (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  local g = batch_of(of)
  if g and ask('ZSCORE', MEMBERS .. of, id) then return {'ended', id, '', '0'} end
  if how == 'stored' or how == 'with' and not g and opened.yes then return nil end
  if how == 'opens' and not g then
    local around = parent ~= '-' and batch_of(parent)
    opened.yes = opened.yes or parent == '-' or around and takes(around, task, fence, boot)
    if opened.yes then return nil end
  end
  if how == 'adds' and g and takes(g, task, fence, boot) then return nil end
  return {'closed', id, '', '0'}
end

-- Adds a new task to its batch. `extra`: the fields of item.lua; the words in it become those that the record stores. If the task
-- opens batches, their headers are in the last field, `opens`.
local function enlist(id, extra, at)
  if extra[#extra - 1] == 'opens' then
    for _, header in ipairs(extra[#extra]) do create_batch(header, at) end
    extra[#extra], extra[#extra - 1] = nil, nil
  end
  for i = 2, #extra, 2 do
    if extra[i] == 'batch' then
      local of, place, next, input, tasks = string.match(extra[i + 1], MEMBER)
      local g = batch_of(of)
      if g then
        place = count_in(g, place, tasks, at)
        extra[i + 1] = table.concat({of, place, next, input, tasks}, ' ')
        redis.call('ZADD', MEMBERS .. of, place, id)
      end
    end
  end
end
