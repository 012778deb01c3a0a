-- Ends a waiting task as cancelled, or asks a running one to stop. Returns 'ok' or 'asked'.
-- use: record spec tell notes finish_why place
local function stop_task(id, r)
  redis.call('ZREM', DUE, id)
  if r.state == 'running' then
    mark(r, 'c')
    r.version = r.version + 1
    redis.call('SETRANGE', TASK .. id, 0, core(r))
    redis.call('SADD', ASKED .. r.owner, id .. ' ' .. r.fence)
    if telling then tell_record(id, r, 'cancel_requested') end
    return 'asked'
  end
  with_spec(r)
  displace(id, r)
  finish_cancelled(id, r, 'cancelled')
  return 'ok'
end
