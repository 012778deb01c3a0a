-- Decides when a rate allows a task to start. This is GCRA, as for admission (submit.lua): PACE of a key stores the time (µs) at which
-- the limit is unused again. Each start moves it forward, up to `tolerance` ahead of now.
-- use: time record
local function idle_at(limit)
  local stored = tonumber(string.match(ask('GET', PACE .. limit.key) or '', '^%d+$')) or 0
  return math.max(now_us, math.min(stored, now_us + limit.tolerance))   -- a time even further ahead means that TIME has gone back
end

-- Returns when a task with these limits may start (ms), and the limit that delays it. Returns nil if the task may start now.
local function paced_until(limits)
  local latest, key = now_us, nil
  for _, limit in ipairs(limits) do
    if limit.interval > 0 then
      limit.idle = idle_at(limit)
      local start = limit.idle + limit.interval - limit.tolerance
      if start > latest then latest, key = start, limit.key end
    end
  end
  return key and math.ceil(latest / 1000), key
end

-- Charges a start that `paced_until` allowed.
local function count_start(limits)
  for _, limit in ipairs(limits) do
    if limit.interval > 0 then
      local idle = limit.idle + limit.interval
      redis.call('SET', PACE .. limit.key, digits(idle), 'PX', digits(math.ceil((idle - now_us) / 1000) + LINGER))
    end
  end
end
