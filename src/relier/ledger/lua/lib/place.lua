-- Adds a queued task to its queue, or removes a waiting task from it.
-- use: record close
local function place(id, r, score)
  if has(r, 'l') then
    -- here: lanes
    enter_lane(id, r, score)
  else
    redis.call('ZADD', READY .. r.queue, score, id)
    ring(r.queue)
  end
end

-- Removes a task that waits for a worker from its queue. If the task may be scheduled instead, the caller removes it from `due`.
local function displace(id, r)
  redis.call('ZREM', READY .. r.queue, id)
  if has(r, 'l') then
    -- here: lanes
    leave_lane(id, r)
  end
end
