-- Reads figures for operators and metrics: a page of queues and a page of nodes, as of one moment.
-- ARGV: cursor of the queues, cursor of the nodes ('0' begin, '' none of them)
-- returns: {TIME (ms), counts, {{queue, ready, revived among them, oldest arrival (ms, '' none), paused, pause version, held back by
--             limits}, …},
--           scheduled, {{node id, lease left (ms), owned, about, beat, polled, registered, role, report, orders}, …}, {done, dead, cancelled},
--           next cursor of the queues, of the nodes ('' the end)}
-- The oldest arrival is taken from the next tasks in the queue: 32 of them if a page has few queues, 200 in all. It is exact for a queue
-- that uses one priority. A queue or node may appear twice. 100 queues and 100 nodes take about 2 ms. Reading the records takes most of
-- that time: with 1,000 of them a page took 9 ms.
-- use: time record spec clock
local ledger_now = read_clock(CLOCK)
local helpers_now = read_clock(HELPER_CLOCK)

local function page_of(command, key, cursor)
  if cursor == '' then return {}, '' end
  local page = redis.call(command, key, cursor, 'COUNT', 100)
  return page[2], page[1] == '0' and '' or page[1]
end

local queues, queues_left = page_of('SSCAN', QUEUES, ARGV[1])
local deep = math.max(1, math.min(32, math.floor(200 / math.max(1, #queues))))

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
    paused, version, redis.call('HGET', WAITING, queue) or 0}
end
local workers = {}
local rows, boots_left = page_of('ZSCAN', BOOTS, ARGV[2])
for i = 1, #rows, 2 do
  local node = redis.call('HMGET', WORKER .. rows[i], 'about', 'beat', 'polled', 'registered', 'role', 'report', 'order')
  local ends = redis.call('ZSCORE', HELPERS, rows[i])
  local left = ends and ends - helpers_now or rows[i + 1] - ledger_now
  for field = 1, 7 do node[field] = node[field] or '' end
  workers[#workers + 1] = {rows[i], digits(left), redis.call('ZCARD', OWNED .. rows[i]), unpack(node)}
end
return {digits(now), redis.call('HGETALL', COUNTS), lines, redis.call('ZCARD', DUE), workers,
  {redis.call('ZCARD', ENDED .. 'done'), redis.call('ZCARD', ENDED .. 'dead'), redis.call('ZCARD', ENDED .. 'cancelled')},
  queues_left, boots_left}
