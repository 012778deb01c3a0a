-- Runs a task again after a delay, unchanged or as another task, because its attempt failed or this worker cannot run it.
-- ARGV: boot (worker id), 1, id, fence, delay (ms), kind ('failure' | 'putback' | 'locked' | 'quiet'), detail,
--       and, if it continues as another task, that task's tail (see lib/item.lua)
--   failure counts as a retry. putback (this worker cannot run it) and locked (another caller holds a lock) use up no
--   attempt, and each remembers when an unbroken series of its kind began. quiet uses up no attempt and adds no line to the
--   history: nothing failed, there was just no room. After a delay the task returns to its place in the queue
-- returns: {{verdict, state, fence}}
-- use: time record close log requeue settle
return settle('retry', 5, function(id, r, a)
  local delay = tonumber(ARGV[a + 2])
  local kind = ARGV[a + 3]
  if kind ~= 'quiet' then log(id, r, 'retry', ARGV[a + 4]) end
  if kind ~= 'failure' then
    r.attempt = r.attempt - 1
    local mine, other = 'since', 'locked_since'
    if kind == 'locked' then mine, other = other, mine end
    if kind ~= 'quiet' then
      redis.call('HSETNX', MORE .. id, mine, now)
      redis.call('HDEL', MORE .. id, other)
    end
  else
    redis.call('HINCRBY', MORE .. id, 'retries', 1)
    redis.call('HDEL', MORE .. id, 'locked_since', 'since', 'scares')   -- its worker survived the attempt
  end
  count('retried')
  if ARGV[8] and not has(r, 'c') then   -- a task that was asked to cancel ends unchanged
    -- here: replace
    replace(id, r, ARGV[8])
  end
  if delay > 0 then return reschedule(id, r, now + delay, kind == 'quiet') end
  return requeue(id, r, now_us)
end)
