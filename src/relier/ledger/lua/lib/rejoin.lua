-- Undoes the end of a dead member whose task is replayed: its batch, and outer batches that had ended, wait for the member again.
-- use: record tell batch
local function rejoin(id)
  local words, member, task = ask('HGET', MORE .. id, 'batch'), id, id
  while words do
    local of = string.match(words, '^%S+')
    local g, score = batch_of(of), ask('ZSCORE', MEMBERS .. of, member)
    local stage = score and math.floor(score / (2 * MEMBER_SPAN))
    if not g or not stage or stage == 0 then return end
    redis.call('ZADD', MEMBERS .. of, score - 2 * MEMBER_SPAN * stage, member)
    if member == task then redis.call('HINCRBY', BATCH .. g.root, 'tasks_dead', -1) end
    redis.call('HINCRBY', BATCH .. of, stage == 3 and 'cancelled' or 'dead', -1)
    if g.failed == task then redis.call('HDEL', BATCH .. of, 'failed') end
    if g.state ~= 'ended' then return end
    redis.call('HSET', BATCH .. of, 'state', 'sealed')
    redis.call('HDEL', BATCH .. of, 'ended')
    if telling then news('batches', 'sealed', of, g.name, 'ended', 'sealed', '', 'replay') end
    if not g.parent then redis.call('ZADD', BATCHES, '+inf', of) end
    words, member = g.parent, '@' .. of
  end
end
