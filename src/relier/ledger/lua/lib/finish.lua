-- Ends a task as done or cancelled: the result replaces the payload. The caller has already removed the record from its index.
-- Ended records are kept for a while. As a backstop they also have a later expiry. If the id must be remembered, the record
-- expires only when its tombstone would, because there may be no sweep to write the tombstone.
-- use: time record tell outcomes close
local function finish(id, r, state, value)
  local ttl = RESULT_TTL
  if r.flags ~= '-' then
    -- here: spec loose_ends
    ttl = math.max(with_spec(r).result_ttl or RESULT_TTL, close_key(id, r, state))
    tie_up(id, r, state, ttl, value)
  end
  if counting then count_outcome(r.why == 'expired' and r.why or state, r.state == 'running' and r.moved, r.text) end
  r.state = state
  step_version(r)
  if value then r.flags = r.flags == '-' and 'y' or r.flags .. 'y' end
  redis.call('SET', TASK .. id, head(r) .. (value or ''), 'PX', digits(ttl + (r.tomb_ttl or 0) + BACKSTOP))
  if telling then tell_record(id, r) end
  end_later(state, now + ttl, id)
  count(state)
end
