-- Moves due tasks to their queues, and ends expired ones. A due task is placed by the time at which it was due or, if it keeps
-- its place, by its age. A task past `expires` that never ran ends as cancelled, even if no worker serves its queue.
-- Also returns due schedules: the caller computes their next times and fires them.
-- ARGV: max tasks in this call (0 = only return schedules), due schedules to skip, the group of schedules to check
-- returns: {promoted, when the next task or schedule is due or expires (TIME, ms; '' none), TIME (ms),
--           {name, version, intended time (ms), definition} of each due schedule of the group, …}
-- use: time record close order notes expired finish_why corrupt place due_schedules
local promoted, most = 0, tonumber(ARGV[1])
local rows = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #rows, 2 do
  local id = rows[i]
  local r = read(id)
  redis.call('ZREM', DUE, id)
  if r.state ~= 'scheduled' then
    bury_corrupt(id, r)
  elseif expired(r) then
    displace(id, r)
    finish_cancelled(id, r, 'expired')
  else
    local at = has(r, 'p') and r.at or rows[i + 1] * 1000
    unmark(r, 'p')
    r.state = 'queued'
    save(id, r)
    place(id, r, order(at, r.priority))
    promoted = promoted + 1
  end
end

-- If a task no longer waits for its first attempt, only its entry is dropped: workers of an older release leave such entries.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', EXPIRING, '-inf', now, 'LIMIT', 0, most - #rows / 2)) do
  local r = read(id)
  redis.call('ZREM', EXPIRING, id)
  if (r.state == 'queued' or r.state == 'scheduled') and expired(r) then
    redis.call('ZREM', DUE, id)
    displace(id, r)
    finish_cancelled(id, r, 'expired')
  end
end
local schedules, next_schedule = due_schedules(ARGV[3], ARGV[2])
close()

local function first(index) return redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2] end
local due, late
if most > 0 then due, late = first(DUE), first(EXPIRING) end
if late and (not due or tonumber(late) < tonumber(due)) then due = late end
if next_schedule and (not due or tonumber(next_schedule) < tonumber(due)) then due = next_schedule end
return {promoted, due or '', now, unpack(schedules)}
