-- Reads the ledger clock (ms), which measures leases. The clock follows TIME, but never goes back and never jumps: one tick
-- moves it by at most `clamp`, which is half the shortest lease of any boot, that is, twice its heartbeat interval.
-- A longer gap between two ticks may be an outage or a failover to a host with a skewed clock, so it does not shorten any lease.
-- A caller that ticks every `interval` can tell: if the gap is longer than two intervals, nobody could tick, and a grace period
-- of one lease begins, in which no boot is declared lost. A shorter gap may be a pause of the caller itself. For a sweep it
-- counts as one clamp, because even a slow sweeper must see a lease end. Without `interval` (a worker that has just started)
-- the cause is unknown.
-- Stored as one string: now, last TIME, clamp, end of the grace period.
-- use: time
local function read_clock(interval, sweeps)
  local t, last, clamp, grace = string.match(redis.call('GET', CLOCK) or '', '^(%d+) (%d+) (%d+) (%d+)$')
  t, last, clamp, grace = tonumber(t) or 1, tonumber(last) or now, tonumber(clamp) or 0, tonumber(grace) or 0
  local gap = now - last
  if gap <= clamp then
    t = t + math.max(0, gap)
  elseif interval and gap > 2 * interval then
    grace = t + 2 * clamp
  elseif sweeps then
    t = t + clamp
  end
  return t, grace, clamp
end
