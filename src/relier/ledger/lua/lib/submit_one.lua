-- Accepts one plain task: no key, no option, and all rate limits admit it. Most submits are like this, and skip the setup of the
-- rest of submit.lua: 10 µs instead of 19 (make bench-ledger, submit, 1 to a script). A plain task that a rate limit refuses skips
-- it too: under overload most tasks are refused.
-- use: time layout tell
-- Returns the answer of submit.lua. If the task is not plain or its id is known, writes nothing and returns nil.
local function submit_one()
  local n_limits = tonumber(ARGV[5])
  local item = 7 + 4 * n_limits
  if not (ARGV[3] == '0' and ARGV[item - 1] == '1' and ARGV[item + 3] == '0' and ARGV[item + 4] == '0' and
    ARGV[item + 5] == '' and ARGV[item + 7] == '' and ARGV[item + 8] == '' and ARGV[item + 10] == '') then return nil end
  local id, index = ARGV[item], READY .. ARGV[item + 1]
  local plain, refused, limits = true, nil, {}    -- per limit: its key, when it is idle now, when it is idle with this task
  for i = 1, n_limits do
    local a = 2 + 4 * i
    local key, tolerance = RATE .. ARGV[a], tonumber(ARGV[a + 2])
    local idle_at = tonumber(redis.call('GET', key) or 0)
    plain = idle_at and idle_at >= 0 and idle_at <= now_us + tolerance
    if not plain then break end
    local arrival = (idle_at > now_us and idle_at or now_us) + (ARGV[a + 3] + ARGV[4]) * ARGV[a + 1]
    limits[3 * i - 2], limits[3 * i - 1], limits[3 * i] = key, idle_at, arrival
    local wait = arrival - tolerance - now_us
    if wait > 0 then
      refused = {'refused', ARGV[a], string.format('%.0f', wait)}
      break
    end
  end
  if ARGV[2] ~= '0' then plain = plain and redis.call('ZCARD', index) + (redis.call('HGET', WAITING, ARGV[item + 1]) or 0) < tonumber(ARGV[2]) end
  if refused and plain and redis.call('EXISTS', TASK .. id) == 0 then return refused end
  local at = string.format('%.0f', now_us + 1)
  local text = first_line('queued', 1, 0, '-', 0, '-', 0) .. '\n' .. at .. ' - - ' .. ARGV[item + 9]
  local written = plain and not refused and redis.pcall('SET', TASK .. id, text, 'NX')
  if written and not written.err then
    local priority = ARGV[item + 2]
    redis.call('ZADD', index, priority == '0' and at or at - priority * PRIORITY_STEP, id)
    redis.call('HINCRBY', COUNTS, 'submitted', 1)
    for i = 3, 3 * n_limits, 3 do
      -- Move the time forward in place, which is the cheapest write. The expiry of the key is set to a minute after this time, and is
      -- renewed before the time has moved by half a minute.
      local key, idle_at, arrival = limits[i - 2], limits[i - 1], limits[i]
      local ahead = math.ceil((arrival - now_us) / 1000) + LINGER
      if type(redis.pcall('INCRBY', key, arrival - idle_at)) ~= 'number' then   -- a number, but not one that we wrote
        redis.call('SET', key, string.format('%.0f', arrival), 'PX', ahead)
      elseif math.floor(arrival / 30000000) > math.floor(idle_at / 30000000) then
        redis.call('PEXPIRE', key, ahead)
      end
    end
    local bell = BELL .. ARGV[item + 1]
    if redis.call('ZCARD', index) == 1 and redis.call('LLEN', bell) == 0 then
      redis.call('RPUSH', bell, '1')
      redis.call('SADD', QUEUES, ARGV[item + 1])
    end
    if telling then publish('tasks', 1, '- queued 1 0 0 - -\n' .. place_of(ARGV[item + 9], 1) .. '\n' .. id) end
    return {'ok', redis.call('HGET', META, 'born') or '', 'queued'}
  end
  return nil
end
