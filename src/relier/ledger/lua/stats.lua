-- Reads numbers for people and metrics: a page of queues and a page of boots, as of one moment.
-- ARGV: cursor of the queues, cursor of the boots ('0' begin, '' none of them)
-- returns: {TIME (ms), counts, {{queue, ready, revived among them, oldest arrival (ms, '' none), paused, pause version}, …},
--           scheduled, {{boot, lease left (ms), owned, about, beat, polled, registered}, …}, {done, dead, cancelled},
--           next cursor of the queues, of the boots ('' the end)}
-- The oldest arrival is searched among the next tasks in line, 32 of them if a page has few queues. It is exact for a queue that
-- uses one priority. A queue or boot may appear twice.
-- use: time record spec clock
local ledger_now = read_clock()

local function page_of(command, key, cursor)
  if cursor == '' then return {}, '' end
  local page = redis.call(command, key, cursor, 'COUNT', 100)
  return page[2], page[1] == '0' and '' or page[1]
end

local queues, queues_left = page_of('SSCAN', QUEUES, ARGV[1])
local deep = math.max(1, math.min(32, math.floor(1000 / math.max(1, #queues))))

local function oldest(queue)
  local found
  for _, id in ipairs(redis.call('ZRANGE', READY .. queue, 0, deep - 1)) do
    local r = read(id)
    local at = r.state and tonumber(with_spec(r).at)
    if at and (not found or at < found) then found = at end
  end
  return found and digits(math.floor(found / 1000)) or ''
end

local lines = {}
for _, queue in ipairs(queues) do
  local paused, version = string.match(redis.call('HGET', PAUSES, queue) or '0 0', '^(%d) (%d+)$')
  lines[#lines + 1] = {queue, redis.call('ZCARD', READY .. queue), redis.call('ZCOUNT', READY .. queue, '-inf', 0), oldest(queue),
    paused, version}
end
local workers = {}
local rows, boots_left = page_of('ZSCAN', BOOTS, ARGV[2])
for i = 1, #rows, 2 do
  local about = redis.call('HMGET', WORKER .. rows[i], 'about', 'beat', 'polled', 'registered')
  workers[#workers + 1] = {rows[i], digits(tonumber(rows[i + 1]) - ledger_now), redis.call('ZCARD', OWNED .. rows[i]),
    about[1] or '', about[2] or '', about[3] or '', about[4] or ''}
end
return {digits(now), redis.call('HGETALL', COUNTS), lines, redis.call('ZCARD', DUE), workers,
  {redis.call('ZCARD', ENDED .. 'done'), redis.call('ZCARD', ENDED .. 'dead'), redis.call('ZCARD', ENDED .. 'cancelled')},
  queues_left, boots_left}
