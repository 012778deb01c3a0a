-- Sweeps: returns the tasks of workers whose lease ran out to their queues, ahead of all other tasks there. Helpers (nodes of
-- another role) own no tasks: they are only removed, by their own clock. There is no leader: any worker may call this as often as
-- it likes. A supervisor that saw a process die calls it at once, for that worker alone.
-- ARGV: max tasks to check in this call, max revived tasks waiting in a queue, sweep interval (ms), boot (worker id; '' = all whose
--       lease ran out), cause
-- returns: {{'<id> <state>', …}, deferred by the brake, nodes removed, workers with more to do}
-- A worker is declared lost first: its heartbeats and claims are refused from then on. It is removed only by the call after which
-- it owns nothing, so a deferred or interrupted sweep loses no task. A deferred task goes to the end of its worker's list, and
-- each call begins with a different worker, so a queue with too many revived tasks does not hold up the others.
-- use: tick
-- Nearly every sweep finds nothing and ends here: 10 µs instead of 21 (make bench-ledger, revive).
local sweeps = ARGV[4] == ''
local _, sure = tick(sweeps and tonumber(ARGV[3]), sweeps)
local helpers_sure
if sweeps and redis.call('EXISTS', HELPERS) == 1 then
  _, helpers_sure = advance(HELPER_CLOCK, tonumber(ARGV[3]), true)
  if redis.call('ZCOUNT', HELPERS, '-inf', helpers_sure) == 0 then helpers_sure = nil end
end
if sweeps and not helpers_sure and redis.call('ZCOUNT', BOOTS, '-inf', sure) == 0 then return {{}, 0, 0, 0} end

-- here: time record spec tell close members lease resurrect corrupt
local most, deepest, named, cause = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4], ARGV[5]
local looked, deferred, removed, pending, outcomes, revived = 0, 0, 0, 0, {}, {}

-- Returns the lost workers. If there are many, returns some of them; each call begins at a different place.
local MOST_BOOTS = 100
local function lost_boots()
  if named ~= '' then return redis.call('ZSCORE', BOOTS, named) and {named} or {} end
  local all, lost = redis.call('ZCOUNT', BOOTS, '-inf', sure), {}
  pending = math.max(0, all - MOST_BOOTS)
  for _, boot in ipairs(redis.call('ZRANGEBYSCORE', BOOTS, '-inf', sure, 'LIMIT', now % (pending + 1), MOST_BOOTS)) do
    if not redis.call('ZSCORE', HELPERS, boot) then lost[#lost + 1] = boot end
  end
  return lost
end

-- Removes helpers whose lease ran out, up to 100 per call.
local function remove_helpers()
  for _, helper in ipairs(redis.call('ZRANGEBYSCORE', HELPERS, '-inf', helpers_sure, 'LIMIT', 0, MOST_BOOTS)) do
    if telling then news('cluster', 'lost', helper, '', '', '', '', cause) end
    remove_boot(helper)
    removed = removed + 1
  end
end

-- Declares a worker lost, and records once how many tasks it ran: a death counts against a task only if the process ran no other.
-- A suspect has its own process, whose death the worker reports (forfeit). If the worker itself dies, the suspect is
-- treated like the other tasks.
local function declare(boot)
  if redis.call('ZSCORE', BOOTS, boot) ~= '0' then
    redis.call('ZADD', BOOTS, 0, boot)
    redis.call('HSET', WORKER .. boot, 'lost', now, 'ran', redis.call('ZCARD', OWNED .. boot), 'cause', cause)
    if telling then news('cluster', 'lost', boot, '', '', '', '', cause) end
  end
  local known = redis.call('HMGET', WORKER .. boot, 'ran', 'cause')
  return known[1] == '1', known[2] or cause
end

local function holds_enough(queue)
  revived[queue] = revived[queue] or redis.call('ZCOUNT', READY .. queue, '-inf', 0)
  return revived[queue] >= deepest
end

local function rescue(boot, id, alone, why)
  local r = read(id)
  if r.state ~= 'running' or r.owner ~= boot then
    redis.call('ZREM', OWNED .. boot, id)
    bury_corrupt(id, r)
  elseif holds_enough(with_spec(r).queue) then
    local last = redis.call('ZRANGE', OWNED .. boot, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', OWNED .. boot, math.max(now, last + 1), id)
    deferred = deferred + 1
  else
    leave(id, r)
    local state = resurrect(id, r, alone, why)
    revived[r.queue] = not has(r, 'l') and revived[r.queue] + (state == 'queued' and 1 or 0) or nil   -- a limited task may not be there
    outcomes[#outcomes + 1] = id .. ' ' .. state
  end
end

local function sweep(boot)
  local alone, why = declare(boot)
  for _, id in ipairs(redis.call('ZRANGE', OWNED .. boot, 0, most - looked - 1)) do
    rescue(boot, id, alone, why)
    looked = looked + 1
  end
  if redis.call('EXISTS', OWNED .. boot) == 0 then
    remove_boot(boot)
    removed = removed + 1
  else
    pending = pending + 1
  end
end

if helpers_sure then remove_helpers() end
local lost = lost_boots()
for i = 1, #lost do
  if looked < most then
    sweep(lost[(now + i) % #lost + 1])
  else
    pending = pending + 1
  end
end
close()
return {outcomes, deferred, removed, pending}
