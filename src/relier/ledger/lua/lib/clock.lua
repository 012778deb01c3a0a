-- The ledger clock (ms), on which leases are measured. It follows TIME, but never goes back and never jumps: it moves on by
-- `clamp` at the most. `clamp` is half the shortest lease of any boot: twice its beat interval.
-- A longer gap may be an outage or a failover to a skewed host, so it does not count and costs no lease anything. Whoever ticks
-- every `interval` knows: if it was longer than two of these, nobody could tick, and a grace begins of one lease in which
-- nobody is declared dead. A shorter gap may be the caller's own pause. To a sweep it counts as a clamp: a slow sweeper must
-- come to the end of a lease. Without `interval` (a worker that has only just come) one cannot tell.
-- Kept as one string: now, last TIME, clamp, end of grace.
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
