-- The ledger clock (ms), on which leases are measured. It follows TIME, but never goes back and never jumps: it moves on by
-- `clamp` at the most. `clamp` is half the shortest lease of any boot: twice its beat interval.
-- A gap in which nobody could tick (an outage, a failover to a skewed host) does not count at all, so it costs no lease
-- anything, and begins a grace of one lease in which nobody is declared dead. `interval` is how often the caller ticks: to a
-- slow sweeper its own pauses are no such gap, or it would never come to the end of a lease.
-- Kept as one string: now, last TIME, clamp, end of grace.
-- use: time
local function read_clock(interval)
  local t, last, clamp, grace = string.match(redis.call('GET', CLOCK) or '', '^(%d+) (%d+) (%d+) (%d+)$')
  t, last, clamp, grace = tonumber(t) or 1, tonumber(last) or now, tonumber(clamp) or 0, tonumber(grace) or 0
  local gap = now - last
  if gap > math.max(clamp, 2 * (interval or 0)) then
    grace = t + 2 * clamp
  else
    t = t + math.max(0, math.min(gap, clamp))
  end
  return t, grace, clamp
end
