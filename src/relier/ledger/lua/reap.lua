-- Removes ended records and batches whose retention is over, and unused queues. Seals open batches whose lease ran out. Repairs
-- limits.
-- ARGV: max records in this call, how long a queue must be unused before it is removed (ms)
-- returns: number of records and batches processed
-- use: time record tell close remove tidy_queues tidy_lanes tidy_batches
local removed, most = 0, tonumber(ARGV[1])
for _, state in ipairs({'done', 'cancelled', 'dead'}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDED .. state, '-inf', now, 'LIMIT', 0, most - removed)) do
    local r = read(id)
    if r.state == state then
      remove(id, r, state)
      count('reaped')
    else
      redis.call('ZREM', ENDED .. state, id)
      if r.corrupt then
        redis.call('UNLINK', TASK .. id, MORE .. id, HISTORY .. id, CHECKPOINT .. id, STEPS .. id)
        if telling then tell(id, 'corrupt', '-', 0, 0, '0', '-', '?\n?') end
      end
      count('strays')
    end
    removed = removed + 1
  end
end
tidy_queues(tonumber(ARGV[2]))
tidy_lanes()
removed = removed + tidy_batches(most - removed)
close()
return removed
