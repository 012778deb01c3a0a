-- The ends done and cancelled: the payload makes room for the result. The caller has taken the record out of the index it
-- was in. Ended records are kept for a while and carry an expiry as a backstop, later than that; an id that is to be
-- remembered, as long as its tombstone would be, for nobody may be there to write one.
-- use: time record close
local function finish(id, r, state, value)
  local ttl = RESULT_TTL
  if r.flags ~= '-' then
    -- here: spec loose_ends
    ttl = math.max(with_spec(r).result_ttl or RESULT_TTL, close_key(id, r, state))
    tie_up(id, r, state, ttl)
  end
  r.state = state
  step_version(r)
  if value then r.flags = r.flags == '-' and 'y' or r.flags .. 'y' end
  redis.call('SET', TASK .. id, head(r) .. (value or ''), 'PX', digits(ttl + (r.tomb_ttl or 0) + BACKSTOP))
  end_later(state, now + ttl, id)
  count(state)
end
