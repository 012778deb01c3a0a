-- Repairs batches: members whose records are gone or have ended, counts, completed batches that did not end, lost places in the index.
-- use: time record batch enter workflow mend
local function mend_member(of, member)
  local g, score = batch_of(of), redis.call('ZSCORE', MEMBERS .. of, member)
  if not g or not score or tonumber(score) >= 2 * MEMBER_SPAN then return end
  local inner = string.match(member, '^@(.*)$')
  if inner then
    if batch_of(inner) then return end
    end_member(of .. ' ' .. digits(score - MEMBER_SPAN) .. ' - - -', member, 'dead', member, inner)
    redis.call('ZREM', MEMBERS .. of, member)   -- it was counted, and the outer batch has nothing left to remove
    line_up()
    return fixed('batch')
  end
  local r = read(member)
  if r.corrupt or r.state == 'scheduled' or r.state == 'queued' or r.state == 'running' then return end
  local words = ask('HGET', MORE .. member, 'batch') or of .. ' ' .. digits(score) .. ' - - -'
  local value = r.state and has(r, 'y') and member .. '\n' .. redis.call('GETRANGE', TASK .. member, r.body - 1, -1)
  end_member(words, member, r.state or r.last or 'dead', value or member, member)
  line_up()
  fixed('batch')
end

local function mend_place(g)
  if g.parent and g.state ~= 'open' or redis.call('ZSCORE', BATCHES, g.id) then return end
  local kept = g.result_ttl or RESULT_TTL
  if g.dead > 0 then kept = math.max(kept, g.dead_ttl or DEAD_TTL) end
  local at = {open = now + (g.lease or 0), sealed = '+inf', ended = now + kept}
  redis.call('ZADD', BATCHES, at[g.state], g.id)
  fixed('batch')
end

-- Counts follow the list of members.
local function mend_batch(id)
  local g = batch_of(id)
  if not g then return end
  local live = redis.call('ZCOUNT', MEMBERS .. id, '-inf', '(' .. digits(2 * MEMBER_SPAN))
  local size = g.done + g.dead + g.cancelled + live
  if g.size ~= size then
    g.size = size
    redis.call('HSET', BATCH .. id, 'size', size)
    fixed('batch')
  end
  mend_place(g)
  if g.state == 'sealed' and live == 0 then
    settle_batch(g)
    fixed('batch')
  end
end

local function mend_listed_batch(_, id)
  if batch_of(id) or not redis.call('ZSCORE', BATCHES, id) then return end
  redis.call('ZREM', BATCHES, id)
  fixed('entry')
end
