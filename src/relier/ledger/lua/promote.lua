-- Tasks whose time has come enter their queues, at the place of the time they were due.
-- ARGV: most tasks in this call
-- returns: {promoted, when the next is due (TIME, ms; '' none), TIME (ms)}
-- use: order corrupt expired
local promoted = 0
local rows = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[1]))
for i = 1, #rows, 2 do
  local id = rows[i]
  local r = read(id)
  redis.call('ZREM', DUE, id)
  if r.state ~= 'scheduled' then
    bury_corrupt(id, r)
  elseif expired(r) then
    finish_cancelled(id, r, 'expired')
  else
    r.state = 'queued'
    save(id, r)
    redis.call('ZADD', READY .. r.queue, order(rows[i + 1] * 1000, r.priority), id)
    ring(r.queue)
    promoted = promoted + 1
  end
end
close()
return {promoted, redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or '', now}
