-- Cancels a batch: it takes no more members, and no next link, `then` or `on_failure` is queued. Each call also cancels some members:
-- waiting ones end, running ones are asked to stop.
-- ARGV: id, cursor ('' begin), max members in this call
-- returns: {'ok' | 'ended' | 'missing', next cursor ('' the end), {inner batches that have not ended, …}}
-- Safe to repeat. A member whose record is gone counts as cancelled.
-- use: record tell close batch workflow stop_task
local g = batch_of(ARGV[1])
if not g then return {'missing', '', {}} end
if g.state == 'ended' then return {'ended', '', {}} end
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
redis.call('HSET', BATCH .. g.id, 'stopped', '1')
if telling and not g.stopped then news('batches', 'cancelled', g.id, g.name, g.state, g.state, '', '') end
g.stopped = true
local from, most = ARGV[2] == '' and '-inf' or '(' .. ARGV[2], tonumber(ARGV[3])
local rows = redis.call('ZRANGEBYSCORE', MEMBERS .. g.id, from, '(' .. digits(2 * MEMBER_SPAN), 'WITHSCORES', 'LIMIT', 0, most)
local inner = {}
for i = 1, #rows, 2 do
  local id = rows[i]
  if string.sub(id, 1, 1) == '@' then
    inner[#inner + 1] = string.sub(id, 2)
  else
    local r = read(id)
    if r.state == 'scheduled' or r.state == 'queued' or r.state == 'running' and not has(r, 'c') then
      stop_task(id, r)
    elseif not r.state and not r.corrupt then
      end_member(g.id .. ' ' .. rows[i + 1] .. ' - - -', id, 'cancelled', nil, id)
    end
  end
end
if g.state == 'open' then seal(g, false) end
close()
return {'ok', #rows < 2 * most and '' or rows[#rows], inner}
