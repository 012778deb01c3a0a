-- Removes ended records whose retention is over, and unused queues.
-- ARGV: most records in this call, how long a queue is found unused before it leaves (ms)
-- returns: records removed
-- use: time record close remove tidy_queues
local removed, most = 0, tonumber(ARGV[1])
for _, state in ipairs({'done', 'cancelled', 'dead'}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDED .. state, '-inf', now, 'LIMIT', 0, most - removed)) do
    local r = read(id)
    if r.state == state then
      remove(id, r, state)
      count('reaped')
    else
      redis.call('ZREM', ENDED .. state, id)
      if r.corrupt then redis.call('UNLINK', TASK .. id, MORE .. id, HISTORY .. id, CHECKPOINT .. id, STEPS .. id) end
      count('strays')
    end
    removed = removed + 1
  end
end
tidy_queues(tonumber(ARGV[2]))
close()
return removed
