-- Sweeps: returns the tasks of boots whose lease ran out to their queues, ahead of all other tasks there. There is no leader:
-- any worker may call this as often as it likes. A supervisor that saw a process die calls it at once, for that boot alone.
-- ARGV: most tasks looked at in this call, most revived tasks waiting in a queue, sweep interval (ms), boot ('' = whoever's lease ran
--       out), cause
-- returns: {{'<id> <state>', …}, deferred by the brake, boots removed, boots with more to do}
-- A boot is declared lost first: its heartbeats and claims are refused from then on. It is removed only by the call after which
-- it owns nothing, so a deferred or interrupted sweep loses no task. A deferred task goes to the end of its boot's list, and
-- each call begins with another boot, so a queue with too many revived tasks does not hold up the others.
-- use: tick
-- Nearly every sweep finds nothing and ends here: 10 µs instead of 21 (make bench-ledger, revive).
local sweeps = ARGV[4] == ''
local _, sure = tick(sweeps and tonumber(ARGV[3]), sweeps)
if sweeps and redis.call('ZCOUNT', BOOTS, '-inf', sure) == 0 then return {{}, 0, 0, 0} end

-- here: time record spec close members lease resurrect corrupt
local most, deepest, named, cause = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4], ARGV[5]
local looked, deferred, removed, pending, outcomes, lanes = 0, 0, 0, 0, {}, {}

-- Returns the lost boots. If there are many, returns some of them; each call begins at another place.
local MOST_BOOTS = 100
local function lost_boots()
  if named ~= '' then return redis.call('ZSCORE', BOOTS, named) and {named} or {} end
  local all = redis.call('ZCOUNT', BOOTS, '-inf', sure)
  pending = math.max(0, all - MOST_BOOTS)
  return redis.call('ZRANGEBYSCORE', BOOTS, '-inf', sure, 'LIMIT', now % (pending + 1), MOST_BOOTS)
end

-- Declares a boot lost, and records once how many tasks it ran: a death counts against a task only if the process ran no other.
-- A suspect has a process of its own, whose death the worker reports (forfeit). If the worker itself dies, the suspect is
-- treated like the other tasks.
local function declare(boot)
  if redis.call('ZSCORE', BOOTS, boot) ~= '0' then
    redis.call('ZADD', BOOTS, 0, boot)
    redis.call('HSET', WORKER .. boot, 'lost', now, 'ran', redis.call('ZCARD', OWNED .. boot), 'cause', cause)
  end
  local known = redis.call('HMGET', WORKER .. boot, 'ran', 'cause')
  return known[1] == '1', known[2] or cause
end

local function lane_is_full(queue)
  lanes[queue] = lanes[queue] or redis.call('ZCOUNT', READY .. queue, '-inf', 0)
  return lanes[queue] >= deepest
end

local function rescue(boot, id, alone, why)
  local r = read(id)
  if r.state ~= 'running' or r.owner ~= boot then
    redis.call('ZREM', OWNED .. boot, id)
    bury_corrupt(id, r)
  elseif lane_is_full(with_spec(r).queue) then
    local last = redis.call('ZRANGE', OWNED .. boot, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', OWNED .. boot, math.max(now, last + 1), id)
    deferred = deferred + 1
  else
    leave(id, r)
    local state = resurrect(id, r, alone, why)
    if state == 'queued' then lanes[r.queue] = lanes[r.queue] + 1 end
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
