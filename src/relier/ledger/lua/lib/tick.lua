-- Advances the ledger clocks. The ZREM is the first write because a full store refuses a SET as the first write, but not later.
-- use: time clock
local function write_clock(key, t, clamp, grace)
  redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', t, now, clamp, grace))
end

-- returns: the clock, and the time up to which ended leases count as over (during a grace period, none do)
local function advance(key, interval, sweeps)
  local t, grace, clamp = read_clock(key, interval, sweeps)
  redis.call('ZREM', LEASES, '')
  write_clock(key, t, clamp, grace)
  return t, t < grace and 0 or t
end

local function tick(interval, sweeps) return advance(CLOCK, interval, sweeps) end

-- Recomputes the clamp of a clock after nodes whose leases it measures joined or left.
local function reclamp(key, leases)
  local t, grace, clamp = read_clock(key)
  local shortest = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
  write_clock(key, t, shortest and math.ceil(shortest / 2) or clamp, grace)
end
