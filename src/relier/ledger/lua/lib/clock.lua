-- The ledger clock (ms), on which leases are measured. It follows TIME, never goes back and never jumps: a gap between
-- two ticks counts as `clamp` at the most, and a larger one (an outage, a failover to a skewed host) sets a grace of one
-- lease in which nobody is declared dead. `clamp` is half the shortest lease of any boot: twice its beat interval.
-- Kept as one string: now, last TIME, clamp, end of grace.
-- use: time
-- `interval` is how often the caller ticks: a slow sweeper moves the clock on by twice that at the most, and not by
-- `clamp`, or it would never come to the end of a lease. But after such a step it may declare dead only whose lease ran
-- out before it (`sure`): the others have not had the time to beat.
local function read_clock(interval)
  local t, last, clamp, grace = string.match(redis.call('GET', CLOCK) or '', '^(%d+) (%d+) (%d+) (%d+)$')
  t, last, clamp, grace = tonumber(t) or 1, tonumber(last) or now, tonumber(clamp) or 0, tonumber(grace) or 0
  local gap, most = now - last, math.max(clamp, 2 * (interval or 0))
  local sure = t
  t = t + math.max(0, math.min(gap, most))
  if gap <= clamp then sure = t end
  if gap > most then grace = t + 2 * clamp end
  if t < grace then sure = 0 end
  return t, grace, clamp, sure
end
