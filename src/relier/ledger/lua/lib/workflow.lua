-- Continues a workflow after a member of a batch ended: queues its next link, updates the counts, queues callbacks, and ends outer
-- batches. close.lua calls it for every task with the flag `b` that a script ended, for whatever reason.
-- use: time record tell batch item enter
-- Queues all tasks of a plan and returns the first id. If one cannot be queued, queues none and returns nil.
-- A plan: {headers of batches, item, …}.
local function start(packed)
  local plan, first, ids = cmsgpack.unpack(packed), #ARGV + 1, {}
  for i = 2, #plan do
    for j = 1, ITEM do ARGV[#ARGV + 1] = plan[i][j] end
    if ids[plan[i][1]] or look(#ARGV + 1 - ITEM) then return nil end
    ids[plan[i][1]] = true
  end
  for _, header in ipairs(plan[1]) do create_batch(header, flow.place) end
  for i = 2, #plan do enter(first + ITEM * (i - 2), i - 2, false, true) end
  return plan[2][1]
end

-- Queues a callback, at most once.
local function fire(g, letter, name)
  local plan = not string.find(g.fired, letter, 1, true) and ask('HGET', PLANS .. g.id, name)
  if not plan then return end
  g.fired = g.fired .. letter
  redis.call('HDEL', PLANS .. g.id, name)
  redis.call('HSET', BATCH .. g.id, 'fired', g.fired, name .. '_id', start(plan) or '')
end

-- Queues the next link at a place. Returns whether there was one that could be queued.
local function go_on(g, place, next, value)
  local plan = ask('HGET', PLANS .. g.id, next)
  if not plan then return false end
  if value then redis.call('HSET', RESULTS .. g.id, '>' .. next, value) end
  redis.call('HDEL', PLANS .. g.id, next)
  flow.place = place
  return start(plan) ~= nil
end

-- Ends a batch if it is complete. If it is an inner batch, returns its words and its state, for the outer batch; otherwise nil.
local function end_batch(g)
  if g.state ~= 'sealed' or g.done + g.dead + g.cancelled < g.size then return nil end
  local stopped, whole = is_stopped(g), g.done == g.size and not g.abandoned
  g.state = 'ended'
  redis.call('HSET', BATCH .. g.id, 'state', 'ended', 'ended', now)
  local outcome = whole and 'done' or stopped and 'cancelled' or 'dead'
  if telling then news('batches', 'ended', g.id, g.name, 'sealed', 'ended', '', outcome) end
  if whole and not stopped then fire(g, 't', 'then') end
  fire(g, 'c', 'on_complete')
  if g.parent then return g.parent, outcome end
  local kept = g.result_ttl or RESULT_TTL
  if g.dead > 0 then kept = math.max(kept, g.dead_ttl or DEAD_TTL) end
  redis.call('ZADD', BATCHES, now + kept, g.id)
  return nil
end

-- Moves a live member to the stage `state`. Returns false if it was not live.
local function leave_live(g, member, state)
  local score = ask('ZSCORE', MEMBERS .. g.id, member)
  if not score or tonumber(score) >= 2 * MEMBER_SPAN then return false end
  redis.call('ZADD', MEMBERS .. g.id, score + 2 * MEMBER_SPAN * STAGES[state], member)
  return true
end

-- Ends one member of one batch. Returns the same as `end_batch`.
local function end_one(words, member, state, value, task)
  local of, place, next, input = string.match(words, MEMBER)
  local g = batch_of(of)
  if not g or not leave_live(g, member, state) then return nil end
  if member == task then redis.call('HINCRBY', BATCH .. g.root, 'tasks_' .. state, 1) end
  local stopped = is_stopped(g)
  if state == 'done' and input ~= '-' then redis.call('HDEL', RESULTS .. of, input) end
  if state == 'done' and next ~= '-' then
    if not stopped and go_on(g, place, next, member == task and value) then return nil end
    state = stopped and 'cancelled' or 'dead'
  end
  g[state] = redis.call('HINCRBY', BATCH .. of, state, 1)
  if state == 'done' then
    if g.collects then redis.call('HSET', RESULTS .. of, place, value) end
  else
    if redis.call('HSETNX', BATCH .. of, 'failed', task) == 1 then g.failed = task end
    if not stopped then fire(g, 'f', 'on_failure') end
  end
  return end_batch(g)
end

-- Ends a member, and every outer batch that is complete now. `value`: the result of the member, `<task id>\n<bytes>`.
local function end_member(words, member, state, value, task)
  while words do
    local around, how = end_one(words, member, state, value, task)
    member = '@' .. string.match(words, '^%S+')
    words, state, value = around, how, member
  end
end

-- Ends the members whose tasks this script ended.
local function end_members(parted)
  for _, end_of in ipairs(parted) do
    local id, state, value = end_of[1], end_of[2], end_of[3]
    local words = ask('HGET', MORE .. id, 'batch')
    if words then end_member(words, id, state, value and id .. '\n' .. value or id, id) end
  end
  line_up()
end

-- Ends a batch that became complete although no member has just ended: it was sealed, or has no members.
local function settle_batch(g)
  local around, how = end_batch(g)
  if around then end_member(around, '@' .. g.id, how, '@' .. g.id, g.failed or g.id) end
  line_up()
end

-- Seals a batch: from now on only its own members may add to it. `abandoned`: its producer stopped before it had added all members.
local function seal(g, abandoned)
  if g.state == 'open' then
    g.state = 'sealed'
    redis.call('HSET', BATCH .. g.id, 'state', 'sealed')
    if telling then news('batches', 'sealed', g.id, g.name, 'open', 'sealed', '', '') end
    if g.parent then redis.call('ZREM', BATCHES, g.id) else redis.call('ZADD', BATCHES, '+inf', g.id) end
  end
  if abandoned then
    g.abandoned = true
    redis.call('HSET', BATCH .. g.id, 'abandoned', '1')
    if telling then news('batches', 'abandoned', g.id, g.name, g.state, g.state, '', '') end
    fire(g, 'f', 'on_failure')
  end
  settle_batch(g)
end
