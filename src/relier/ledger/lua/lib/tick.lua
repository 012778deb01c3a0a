-- Advances the ledger clock. The ZREM is the first write because a full store refuses a SET as the first write, but not later.
-- use: time clock
local function write_clock(t, clamp, grace)
  redis.call('SET', CLOCK, string.format('%.0f %.0f %.0f %.0f', t, now, clamp, grace))
end

-- returns: the clock, and up to when a lease that ended is over for sure: in a grace, none is
local function tick(interval, sweeps)
  local t, grace, clamp = read_clock(interval, sweeps)
  redis.call('ZREM', LEASES, '')
  write_clock(t, clamp, grace)
  return t, t < grace and 0 or t
end

-- Sets the clamp again after boots came or went.
local function reclamp()
  local t, grace, clamp = read_clock()
  local shortest = redis.call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')[2]
  write_clock(t, shortest and math.ceil(shortest / 2) or clamp, grace)
end
