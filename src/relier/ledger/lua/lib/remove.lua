-- Removes an ended record from the store. An id that must not run again leaves a tombstone.
-- use: time record spec tell notes
local function remove(id, r, state)
  local key = noted(id, r, 'key')
  if key and string.match(ask('GET', IDEM .. key) or '', '^%S+') == id then redis.call('DEL', IDEM .. key) end
  redis.call('ZREM', ENDED .. state, id)
  redis.call('UNLINK', TASK .. id, MORE .. id, HISTORY .. id, CHECKPOINT .. id, STEPS .. id)
  if telling then tell(id, state, '-', r.version, r.attempt, r.fence, '-', place_of(r.text)) end
  local tomb_ttl = with_spec(r).tomb_ttl
  if tomb_ttl then
    redis.call('SET', TASK .. id, 'ended ' .. digits(now + tomb_ttl) .. ' ' .. state, 'PX', tomb_ttl + LINGER)
  end
end
