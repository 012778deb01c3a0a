-- One plain task, in one straight line: no key, no option, and whatever limits there are admit it. Most submits are this,
-- and what the others need is not even set up for it. Where it is not so, or the id is here already, it leaves the matter
-- to the rest of the script, having written nothing.
-- use: layout
local NEW = 'queued 1 0 - 0 - 0                                                                              \n'
local n_limits = tonumber(ARGV[5])
local item = 7 + 4 * n_limits
if ARGV[3] == '0' and ARGV[item - 1] == '1' and ARGV[item + 3] == '0' and ARGV[item + 4] == '0' and
  ARGV[item + 5] == '' and ARGV[item + 7] == '' and ARGV[item + 8] == '' then
  local id, index = ARGV[item], READY .. ARGV[item + 1]
  local admitted, arrivals = true, {}
  if n_limits > 0 then
    admitted = redis.call('EXISTS', TASK .. id) == 0
    for i = 1, n_limits do
      local a = 2 + 4 * i
      local tolerance = tonumber(ARGV[a + 2])
      local idle_at = tonumber(redis.call('GET', RATE .. ARGV[a]) or 0)
      arrivals[i] = math.max(idle_at or now_us, now_us) + (ARGV[a + 3] + ARGV[4]) * ARGV[a + 1]
      admitted = admitted and idle_at and idle_at >= 0 and arrivals[i] - tolerance <= now_us
    end
  end
  if ARGV[2] ~= '0' then admitted = admitted and redis.call('ZCARD', index) < tonumber(ARGV[2]) end
  local at = string.format('%.0f', now_us + 1)
  local written = admitted and redis.pcall('SET', TASK .. id, NEW .. at .. ' - - ' .. ARGV[item + 9], 'NX')
  if written and not written.err then
    local priority = ARGV[item + 2]
    redis.call('ZADD', index, priority == '0' and at or at - priority * 60000000, id)
    redis.call('HINCRBY', COUNTS, 'submitted', 1)
    for i = 1, n_limits do
      local ahead = math.ceil((arrivals[i] - now_us) / 1000) + 60000
      redis.call('SET', RATE .. ARGV[2 + 4 * i], string.format('%.0f', arrivals[i]), 'PX', ahead)
    end
    local bell = BELL .. ARGV[item + 1]
    if redis.call('ZCARD', index) == 1 and redis.call('LLEN', bell) == 0 then
      redis.call('RPUSH', bell, '1')
      redis.call('SADD', QUEUES, ARGV[item + 1])
    end
    return {'ok', 'queued'}
  end
end
