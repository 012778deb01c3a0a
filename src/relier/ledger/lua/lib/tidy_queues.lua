-- Removes unused queues: their entry, their doorbell, their pause version. A queue is unused if it was empty and not paused at
-- every check for `unused` ms. A task that enters it later creates what it needs. One call checks some queues and stores the
-- cursor for the next call.
-- use: time
local function tidy_queues(unused)
  redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
  local page = redis.call('SSCAN', QUEUES, redis.call('HGET', META, 'tidied') or '0', 'COUNT', 100)
  redis.call('HSET', META, 'tidied', page[1])
  for _, queue in ipairs(page[2]) do
    local since = redis.call('ZSCORE', IDLE, queue)
    if redis.call('EXISTS', READY .. queue) == 1 or redis.call('HEXISTS', WAITING, queue) == 1 or string.sub(redis.call('HGET', PAUSES, queue) or '', 1, 1) == '1' then
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
