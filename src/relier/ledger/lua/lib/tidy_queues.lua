-- Queues that nobody uses leave: their entry, their bell, their pause version. Unused is one that was empty and not paused at every look
-- for `unused` ms; a task that enters it later brings back what it needs. A call looks at some queues; the cursor is kept for the next.
-- use: time
local function tidy_queues(unused)
  redis.call('HDEL', META, 'full')   -- a first write that a full store does not refuse
  local page = redis.call('SSCAN', QUEUES, redis.call('HGET', META, 'tidied') or '0', 'COUNT', 100)
  redis.call('HSET', META, 'tidied', page[1])
  for _, queue in ipairs(page[2]) do
    local since = redis.call('ZSCORE', IDLE, queue)
    if redis.call('EXISTS', READY .. queue) == 1 or string.sub(redis.call('HGET', PAUSES, queue) or '', 1, 1) == '1' then
      if since then redis.call('ZREM', IDLE, queue) end
    elseif not since then
      redis.call('ZADD', IDLE, now, queue)
    elseif now - since >= unused then
      redis.call('SREM', QUEUES, queue)
      redis.call('ZREM', IDLE, queue)
      redis.call('HDEL', PAUSES, queue)
      redis.call('DEL', BELL .. queue)
    end
  end
end
