-- Accepts tasks: all of them or, if a limit is exceeded, none. For an id that already exists, the answer describes the existing
-- task.
-- ARGV: durable ('1' or ''), max depth of a queue (0 none), max payload bytes held (0 none), extra cost,
--       n limits, then per limit: name, emission interval (µs), tolerance (µs), weight of one task
--       n items, then per item: see lib/item.lua
-- returns: {'ok', the namespace's birth mark ('' none), per item: the state of a new task, or {status, id, state, version}}
--                   status: new (a repeat of this push) | exists | duplicate | ended | corrupt
--          {'refused', limit, retry after (µs, 0 = unknown)}; or an error if the state of a limit cannot be read
-- The checks run in this order: id, idempotency, admission. Only new tasks count towards limits, so a repeat costs nothing.
-- use: submit_one
local answer = submit_one()
if answer then return answer end
-- here: time item record close enter
local max_depth, max_bytes, n_limits = ARGV[2], ARGV[3], tonumber(ARGV[5])
local first = 7 + 4 * n_limits
local answers, fresh, arrivals = {'ok', redis.call('HGET', META, 'born') or ''}, {}, {}

local guarded = n_limits > 0 or max_depth ~= '0' or max_bytes ~= '0'
local idle, seen, twins = true, {}, {}
for i = 1, tonumber(ARGV[first - 1]) do
  local a = first + ITEM * (i - 1)
  local id, key = ARGV[a], ARGV[a + 5]
  if seen[id] or key ~= '' and seen['key ' .. key] then
    twins[#twins + 1] = {i + 2, a}
  else
    -- Without limits and without a key there is nothing to check first: the write itself shows whether the id is new.
    answers[i + 2] = not guarded and key == '' and string.sub(ARGV[a + 6], 1, 6) ~= 'member' and enter(a, i, false)
    if answers[i + 2] then
      idle = false
    else
      answers[i + 2] = look(a)
      if not answers[i + 2] then
        fresh[#fresh + 1] = {i + 2, a}
        seen[id], seen['key ' .. key] = true, true
      end
    end
  end
end
if idle and #fresh == 0 then
  if ARGV[1] == '1' then
    -- here: touch
    touch()
  end
  return answers
end

if guarded and #fresh > 0 then
  local function refusal()
    local function too_deep(most)
      local depth = {}
      for _, item in ipairs(fresh) do
        local queue = ARGV[item[2] + 1]
        depth[queue] = (depth[queue] or redis.call('ZCARD', READY .. queue) + (redis.call('HGET', WAITING, queue) or 0)) + 1
        if depth[queue] > most then return {'refused', 'depth:' .. queue, '0'} end
      end
    end

    local function too_much(most)
      local bytes = tonumber(redis.call('HGET', COUNTS, 'bytes')) or 0
      for _, item in ipairs(fresh) do bytes = bytes + #ARGV[item[2] + TAIL] end
      if bytes > most then return {'refused', 'bytes', '0'} end
    end

    -- GCRA: each limit stores the time at which it will be idle. Each task moves that time forward, up to `tolerance` ahead of
    -- now. `arrivals` collects what to write if all limits admit the tasks.
    local function too_fast()
      for i = 6, 5 + 4 * n_limits, 4 do
        local interval, tolerance, weight = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
        local idle_at = tonumber(string.match(redis.call('GET', RATE .. ARGV[i]) or '0', '^%d+$'))
        if not idle_at then return redis.error_reply('ERR something else wrote to admission limit ' .. ARGV[i]) end
        if idle_at > now_us + tolerance then
          -- Further ahead than any task could have moved it, so TIME has gone back. The limit is full now, and drains from here.
          idle_at = now_us + tolerance
          redis.call('SET', RATE .. ARGV[i], digits(idle_at), 'PX', math.ceil(tolerance / 1000) + LINGER)
        end
        idle_at = math.max(idle_at, now_us)
        local arrival = idle_at + (#fresh * weight + ARGV[4]) * interval
        if arrival - tolerance > now_us then return {'refused', ARGV[i], digits(arrival - tolerance - now_us)} end
        arrivals[#arrivals + 1] = {ARGV[i], arrival}
      end
    end

    return max_depth ~= '0' and too_deep(tonumber(max_depth)) or max_bytes ~= '0' and too_much(tonumber(max_bytes)) or too_fast()
  end

  local refused = refusal()
  if refused then return refused end
end

for _, item in ipairs(fresh) do answers[item[1]] = enter(item[2], item[1] - 2, max_bytes ~= '0', true) end
-- Items whose id or key occurs twice in this call: the second finds the first.
for _, item in ipairs(twins) do
  answers[item[1]] = look(item[2]) or enter(item[2], item[1] - 2, max_bytes ~= '0', true)
end
for _, taken in ipairs(arrivals) do
  redis.call('SET', RATE .. taken[1], digits(taken[2]), 'PX', math.ceil((taken[2] - now_us) / 1000) + LINGER)
end
line_up()
close()
return answers
