-- Ends a task with a reason: a dead one keeps its payload for a replay, a cancelled one does not. `lost` is nil, 'bury' or 'hold':
-- what happens to a task that died with its worker and must not be retried.
-- use: time record spec outcomes close notes finish loose_ends
local function finish_dead(id, r, reason, lost)
  local ttl = with_spec(r).dead_ttl or DEAD_TTL
  if lost == 'hold' then ttl = nil end
  close_key(id, r, 'dead', lost, ttl)
  note(id, r, 'reason', reason)
  if counting then count_outcome('dead', r.state == 'running' and r.moved, r.text) end
  r.state, r.why = 'dead', reason
  save(id, r)
  end_later('dead', ttl and now + ttl or '+inf', id)
  tie_up(id, r, 'dead', ttl)
  if ttl then redis.call('PEXPIRE', TASK .. id, digits(ttl + (r.tomb_ttl or 0) + BACKSTOP)) end
  count('dead')
end

local function finish_cancelled(id, r, reason)
  note(id, r, 'reason', reason)
  r.why = reason
  finish(id, r, 'cancelled')
end
