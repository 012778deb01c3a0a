-- Numbers for people and metrics, at one moment.
-- returns: {TIME (ms), counts, {{queue, ready, revived among them, oldest arrival (ms, '' none), paused, pause version}, …},
--           scheduled, {{boot, lease left (ms), owned, about, beat, polled, registered}, …}, {done, dead, cancelled}}
-- The oldest arrival is looked for among the 32 next in line: exact where a queue uses one priority.
-- use: clock spec
local ledger_now = read_clock()

local function oldest(queue)
  local found
  for _, id in ipairs(redis.call('ZRANGE', READY .. queue, 0, 31)) do
    local r = read(id)
    local at = r.state and tonumber(with_spec(r).at)
    if at and (not found or at < found) then found = at end
  end
  return found and digits(math.floor(found / 1000)) or ''
end

local lines = {}
for _, queue in ipairs(redis.call('SMEMBERS', QUEUES)) do
  local paused, version = string.match(redis.call('HGET', PAUSES, queue) or '0 0', '^(%d) (%d+)$')
  lines[#lines + 1] = {queue, redis.call('ZCARD', READY .. queue), redis.call('ZCOUNT', READY .. queue, '-inf', 0), oldest(queue),
    paused, version}
end
local workers = {}
local rows = redis.call('ZRANGE', BOOTS, 0, -1, 'WITHSCORES')
for i = 1, #rows, 2 do
  local about = redis.call('HMGET', WORKER .. rows[i], 'about', 'beat', 'polled', 'registered')
  workers[#workers + 1] = {rows[i], digits(tonumber(rows[i + 1]) - ledger_now), redis.call('ZCARD', OWNED .. rows[i]),
    about[1] or '', about[2] or '', about[3] or '', about[4] or ''}
end
return {digits(now), redis.call('HGETALL', COUNTS), lines, redis.call('ZCARD', DUE), workers,
  {redis.call('ZCARD', ENDED .. 'done'), redis.call('ZCARD', ENDED .. 'dead'), redis.call('ZCARD', ENDED .. 'cancelled')}}
