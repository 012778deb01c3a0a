-- Reads a ledger clock (ms), which measures leases: CLOCK those of workers, HELPER_CLOCK those of all other roles.
-- A clock follows TIME, but never goes back and never jumps: one tick moves it by at most `clamp`, half the shortest lease that it
-- measures, which is two heartbeat intervals of that lease.
-- A longer gap between two ticks may be an outage or a failover to a host with a skewed clock, so it does not shorten any lease.
-- A caller that ticks every `interval` knows the difference: if the gap is longer than two intervals, no node could tick. Then a
-- grace period of one lease begins, during which no lease on this clock ends. A shorter gap may be a pause of the caller itself. A
-- sweep counts it as one clamp, because even a slow sweeper must see leases end. Without `interval` (a worker that has just started)
-- the cause is unknown.
-- Stored as one string: now, last TIME, clamp, end of the grace period.
-- use: time
local function read_clock(key, interval, sweeps)
  local t, last, clamp, grace = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) (%d+) (%d+)$')
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
