-- The sweep: tasks of boots whose lease ran out go back to their queue, before all others there. No leader: anyone may call it,
-- as often as they like. Also a supervisor that saw a process die, for that boot alone and at once.
-- ARGV: most tasks looked at in this call, most revived tasks waiting in a queue, sweep interval (ms), boot ('' = whoever's lease ran
--       out), cause
-- returns: {{'<id> <state>', …}, deferred by the brake, boots removed, boots with more to do}
-- A boot is declared lost first (its beats and claims are refused from then on) and removed only by the call that finds
-- it owning nothing, so a braked or interrupted sweep strands nobody. A braked task goes to the end of its boot's line and
-- each call begins with another boot, so a full lane holds up nobody else's.
-- use: tick
-- A sweep that finds nothing ends here, as nearly every one does: 10 µs instead of 21 (make bench-ledger, revive).
local sweeps = ARGV[4] == ''
local _, sure = tick(sweeps and tonumber(ARGV[3]), sweeps)
if sweeps and redis.call('ZCOUNT', BOOTS, '-inf', sure) == 0 then return {{}, 0, 0, 0} end

-- here: time record spec close members lease resurrect corrupt
local most, deepest, named, cause = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4], ARGV[5]
local looked, deferred, removed, pending, outcomes, lanes = 0, 0, 0, 0, {}, {}

-- Some of them, where there are many: each call begins elsewhere.
local MOST_BOOTS = 100
local function lost_boots()
  if named ~= '' then return redis.call('ZSCORE', BOOTS, named) and {named} or {} end
  local all = redis.call('ZCOUNT', BOOTS, '-inf', sure)
  pending = math.max(0, all - MOST_BOOTS)
  return redis.call('ZRANGEBYSCORE', BOOTS, '-inf', sure, 'LIMIT', now % (pending + 1), MOST_BOOTS)
end

-- The number it ran is written down once, when it is declared lost: only a process that ran one task convicts it. A suspect
-- has a process of its own, whose death its worker testifies (forfeit): the worker's convicts it no more than the others.
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
