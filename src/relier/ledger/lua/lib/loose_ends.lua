-- Settles the keys stored alongside a record when its task ends.
-- use: time record close notes
-- Closes the idempotency key: kept for its time after done, freed otherwise. `lost` keeps it for `ttl` (ms), until an
-- operator decides: the task of a lost worker is not retried, but may have had its effect. Returns how long the mark holds after done (ms).
local function close_key(id, r, state, lost, ttl)
  local key = r.key_ttl and noted(id, r, 'key')
  if not key or ask('GET', IDEM .. key) ~= id then return 0 end
  if state == 'done' then
    redis.call('SET', IDEM .. key, id .. ' ' .. digits(now + r.key_ttl), 'PX', digits(r.key_ttl + LINGER))
    return r.key_ttl
  end
  if not lost then redis.call('DEL', IDEM .. key)
  elseif ttl then redis.call('PEXPIRE', IDEM .. key, ttl + BACKSTOP) end
  return 0
end

-- Gives the side keys that stay an expiry as a backstop, and removes those that are no longer needed. Gives back the bytes held.
-- Every end of a task goes through this function, so it is the one place that notes the end of a batch's member.
local function tie_up(id, r, state, ttl, value)
  for flag, key in pairs({h = HISTORY .. id, m = MORE .. id, k = CHECKPOINT .. id, s = STEPS .. id}) do
    if has(r, flag) then
      if state ~= 'dead' and (flag == 'k' or flag == 's') then redis.call('UNLINK', key)
      elseif ttl then redis.call('PEXPIRE', key, ttl + BACKSTOP) end
    end
  end
  if has(r, 'b') then part(id, state, value) end
  if r.held then count('bytes', -r.held) end
  if has(r, 'l') then
    -- here: lanes
    count_limited(id, -1)
  end
  if r.expires and r.fence == '0' then redis.call('ZREM', EXPIRING, id) end
end
