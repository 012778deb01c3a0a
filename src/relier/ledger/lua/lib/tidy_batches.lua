-- Seals open batches whose lease ran out, as abandoned. Removes ended batches whose retention is over, inner ones first.
-- use: time record tell batch workflow
-- Returns an inner batch, at any depth, that contains no other batch.
local function innermost(id)
  local around, found = nil, id
  while found do
    id = found
    found = nil
    for stage = 0, 3 do
      local from = (2 * stage + 1) * MEMBER_SPAN
      local rows = found and {} or redis.call('ZRANGEBYSCORE', MEMBERS .. id, from, '(' .. digits(from + MEMBER_SPAN), 'LIMIT', 0, 1)
      if rows[1] then around, found = id, string.sub(rows[1], 2) end
    end
  end
  return id, around
end

-- Removes a batch and its inner batches, at most `most` of them. A batch whose results a callback takes is kept until that callback
-- is done.
local function remove_batch(id, most)
  for n = 1, most do
    local leaf, around = innermost(id)
    local waits = ask('HGET', BATCH .. leaf, 'then_id')
    local r = waits and waits ~= '' and read(waits)
    if r and r.state and r.state ~= 'done' and r.state ~= 'cancelled' then
      redis.call('ZADD', BATCHES, now + RESULT_TTL, id)
      return n
    end
    if telling then news('batches', 'removed', leaf, ask('HGET', BATCH .. leaf, 'name') or '', 'ended', '', '', '') end
    redis.call('UNLINK', BATCH .. leaf, MEMBERS .. leaf, PLANS .. leaf, RESULTS .. leaf)
    if leaf == id then
      redis.call('ZREM', BATCHES, id)
      return n
    end
    redis.call('ZREM', MEMBERS .. around, '@' .. leaf)
  end
  return most
end

-- Returns the number of batches that were checked.
local function tidy_batches(most)
  local looked = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', BATCHES, '-inf', now, 'LIMIT', 0, most)) do
    if looked >= most then break end
    local g = batch_of(id)
    looked = looked + 1
    if not g then redis.call('ZREM', BATCHES, id)
    elseif g.state == 'ended' then looked = looked - 1 + remove_batch(id, most - looked + 1)
    else seal(g, g.state == 'open') end
  end
  return looked
end
