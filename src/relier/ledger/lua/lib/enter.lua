-- How a task enters the ledger: by submit, or as a follow-up inside a commit. An item is a run of ITEM values in ARGV:
--   id, queue, priority, eta, expires, key, on_conflict, nonce, options ('1': line 2 holds some), tail
-- eta and expires: 0 none, > 0 a time (TIME, ms), < 0 that many ms from now. tail: the record from `priority` on, with
-- the payload (see record.lua).
-- use: record close order
local ITEM, TAIL = 10, 9
local NEW = {queued = string.format('%-96s', 'queued 1 0 - 0 - 0'), scheduled = string.format('%-96s', 'scheduled 1 0 - 0 - 0')}
local lined_up = {}

local function absolute(number)
  number = tonumber(number)
  if number < 0 then return now - number end
  return number
end

local function known(id, nonce)
  local r = read(id)
  if r.corrupt then return {'corrupt', id, '', '0'} end
  if r.state then
    local mine = nonce ~= '' and has(r, 'm') and redis.call('HGET', MORE .. id, 'nonce') == nonce
    return {mine and 'new' or 'exists', id, r.state, r.version}
  end
  local till, state = string.match(redis.call('GET', TOMB .. id) or '', '^(%d+) (%l+)$')
  if till and tonumber(till) > now then return {'ended', id, state, '0'} end
  return nil
end

-- Looks, writes nothing: the answer for an item that is already here, or nil for a new one. `seen` holds what this very
-- call brings along, by id and by key.
local function look(a, seen)
  local id, key = ARGV[a], ARGV[a + 5]
  if seen[id] then return {'exists', id, 'queued', '1'} end
  if redis.call('EXISTS', TASK .. id, TOMB .. id) > 0 then
    local answer = known(id, ARGV[a + 7])
    if answer then return answer end
  end
  if key ~= '' then
    -- here: key
    local twin = seen['key ' .. key]
    if twin then return {'duplicate', twin, 'queued', '1'} end
    local other, r = holder(key)
    local replaces = ARGV[a + 6] == 'replace' and r and (r.state == 'queued' or r.state == 'scheduled')
    if other and not replaces then return {'duplicate', other, r.state, r.version} end
    seen['key ' .. key] = id
  end
  seen[id] = true
  return nil
end

-- Takes the key, the nonce; a queued or scheduled holder of the key makes room. Sets the record's first flag.
local function take_more(id, key, nonce)
  -- here: key finish_why
  local other, r
  if key ~= '' then other, r = holder(key) end
  if other then
    with_spec(r)
    redis.call('ZREM', READY .. r.queue, other)
    redis.call('ZREM', DUE, other)
    finish_cancelled(other, r, 'replaced')
  end
  if key ~= '' then
    redis.call('SET', IDEM .. key, id)
    redis.call('HSET', MORE .. id, 'key', key)
  end
  if nonce ~= '' then redis.call('HSET', MORE .. id, 'nonce', nonce) end
end

-- Queued items are gathered and lined up by `line_up`, which whoever enters calls at the end.
local function line_up()
  for queue, rows in pairs(lined_up) do
    local index = READY .. queue
    local added = redis.call('ZADD', index, unpack(rows))
    -- What waits already was rung for: only the first of a queue rings.
    if redis.call('ZCARD', index) == added then ring(queue) end
  end
end

-- Line 1 and the server's part of line 2 of a new record.
local function opening(state, flags, at, expires, held)
  local line = flags == '' and NEW[state] or string.format('%-96s', state .. ' 1 0 - 0 ' .. flags .. ' 0')
  return string.format('%s\n%.0f %s %s ', line, at, expires, held)
end

-- Writes a new item and returns its state; nil, and nothing is written, where the id is here already. `nth` keeps the
-- order of a batch that shares one TIME; `charged`: its bytes count as held. The record goes first: it is a write that a
-- full store refuses, and then nothing has been written.
local function enter(a, nth, charged)
  local id, queue, key, nonce, tail = ARGV[a], ARGV[a + 1], ARGV[a + 5], ARGV[a + 7], ARGV[a + TAIL]
  local at, eta, expires, flags = now_us + nth, 0, '-', ''
  if ARGV[a + 3] ~= '0' then eta = absolute(ARGV[a + 3]) end
  if ARGV[a + 4] ~= '0' then expires = digits(absolute(ARGV[a + 4])) end
  if key ~= '' or nonce ~= '' then flags = 'm' end
  if charged or expires ~= '-' or ARGV[a + 8] == '1' then flags = flags .. 'o' end
  if flags ~= '' and redis.call('EXISTS', TOMB .. id) == 1 then return nil end
  local state = eta > now and 'scheduled' or 'queued'
  local text = opening(state, flags, at, expires, charged and #tail or '-') .. tail
  if not redis.call('SET', TASK .. id, text, 'NX') then return nil end
  if key ~= '' or nonce ~= '' then take_more(id, key, nonce) end
  if state == 'scheduled' then
    redis.call('ZADD', DUE, eta, id)
  else
    local rows = lined_up[queue] or {}
    lined_up[queue] = rows
    rows[#rows + 1] = order(at, ARGV[a + 2])
    rows[#rows + 1] = id
  end
  count('submitted')
  if charged then count('bytes', #tail) end
  return state
end
