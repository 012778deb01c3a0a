-- Decides whether the limits of a claimed head allow it to run now. If so, the head takes a slot of each limit. Otherwise its lane
-- sleeps, or the head waits in `due` for a rate. In that case no attempt has begun.
-- use: spec notes lanes pace
local function admit(id, r, score, fence)
  local queue, limits = with_spec(r).queue, limits_of(id)
  local lane = lane_of(limits, queue)
  local key, due = first_full(limits), nil
  if not key then due, key = paced_until(limits) end
  if due and redis.call('HSETNX', PACERS, key .. ' ' .. queue, id) == 1 then
    mark(r, 'p')
    r.state = 'scheduled'
    save(id, r)
    redis.call('ZADD', DUE, due, id)
    pass_on(limits, queue, key)
    return false
  elseif key then
    wait_in(lane, queue, score, id)
    sleep(lane, key, queue)
    pass_on(limits, queue, key)
    return false
  end
  for _, limit in ipairs(limits) do redis.call('ZADD', SLOTS .. limit.key, fence, id) end
  count_start(limits)
  succeed(lane, queue)
  for _, limit in ipairs(limits) do
    if limit.interval > 0 then wake_one(limit.key, queue) end
  end
  return true
end
