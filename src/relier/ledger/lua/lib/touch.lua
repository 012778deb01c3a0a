-- A write for its own sake. WAIT and WAITAOF confirm only up to this connection's last write, so a call that found its
-- work done already must write something before its repeat can be called durable.
-- use: time
local function touch()
  redis.call('HDEL', META, 'full')
  redis.call('HSET', META, 'touched', now)
end
