-- Enters tasks into the ledger, by submit or as follow-ups of a commit or a bury.
-- use: time layout item record tell close order
local lined_up = {}
local flow = {opened = {}}   -- batches that this call creates, and the place of the member that a new task follows

-- Returns the answer for an item that already exists, or nil for a new one. Writes nothing.
local function look(a)
  local id, key, nonce = ARGV[a], ARGV[a + 5], ARGV[a + 7]
  if redis.call('EXISTS', TASK .. id) == 1 then
    local r = read(id)
    if r.state then
      local mine = nonce ~= '' and has(r, 'm') and ask('HGET', MORE .. id, 'nonce') == nonce
      return {mine and 'new' or 'exists', id, r.state, r.version}
    end
    if r.corrupt or not r.till then return {'corrupt', id, '', '0'} end
    if r.till > now then return {'ended', id, r.last, '0'} end
  end
  if string.sub(ARGV[a + 6], 1, 7) == 'member ' then
    -- here: batch
    return refuses(id, ARGV[a + 6], flow.opened)
  end
  if key ~= '' then
    -- here: key
    local other, r = holder(key)
    local replaces = ARGV[a + 6] == 'replace' and r and (r.state == 'queued' or r.state == 'scheduled')
    if other and not replaces then return {'duplicate', other, r.state, r.version} end
  end
  return nil
end

-- Adds the queued items that `enter` collected to their queues. Callers of `enter` call this at the end.
local function line_up()
  for queue, rows in pairs(lined_up) do
    local index = READY .. queue
    -- If tasks already wait, the doorbell has rung for them. So ring only if the queue was empty.
    if zadd(index, rows) == redis.call('ZCARD', index) then ring(queue) end
  end
  lined_up = {}
end

-- Stores the idempotency key and the nonce. A queued or scheduled holder of the key is cancelled as replaced.
local function take_more(id, key, nonce)
  -- here: key spec notes finish_why place
  local other, r
  if key ~= '' then other, r = holder(key) end
  if other then
    line_up()
    with_spec(r)
    redis.call('ZREM', DUE, other)
    displace(other, r)
    finish_cancelled(other, r, 'replaced')
  end
  if key ~= '' then
    redis.call('SET', IDEM .. key, id)
    beside('HSET', MORE .. id, 'key', key)
  end
  if nonce ~= '' then beside('HSET', MORE .. id, 'nonce', nonce) end
end

-- Writes a new item and returns its state. `looked`: `look` found that the id is new; otherwise the write itself checks that, and
-- the answer is nil if it is not. `nth` keeps the order of a batch that shares one TIME. `charged`: the item's bytes count as
-- held. The record is written first: a full store refuses that write, and then nothing has been written.
local function enter(a, nth, charged, looked)
  local id, queue, key, nonce, tail = ARGV[a], ARGV[a + 1], ARGV[a + 5], ARGV[a + 7], ARGV[a + TAIL]
  local at, eta, expires, flags = now_us + nth, 0, '-', ''
  if ARGV[a + 3] ~= '0' then eta = tonumber(ARGV[a + 3]) end
  if eta < 0 then eta = now - eta end
  if ARGV[a + 4] ~= '0' then expires = string.gsub(ARGV[a + 4], '^-%d+$', function(ms) return digits(now - ms) end) end
  local extra = ARGV[a + EXTRA] ~= '' and cmsgpack.unpack(ARGV[a + EXTRA])
  if extra then flags = 'm' .. extra[1] elseif key ~= '' or nonce ~= '' then flags = 'm' end
  if charged or expires ~= '-' or ARGV[a + 8] == '1' then flags = flags .. 'o' end
  local state = eta > now and 'scheduled' or 'queued'
  local line = first_line(state, 1, 0, '-', 0, flags == '' and '-' or flags, 0)
  local text = line .. '\n' .. digits(at) .. ' ' .. expires .. (charged and ' ' .. #tail .. ' ' or ' - ') .. tail
  if looked then
    redis.call('SET', TASK .. id, text)
  else
    local written = redis.pcall('SET', TASK .. id, text, 'NX')
    if not written or written.err and redis.call('EXISTS', TASK .. id) == 1 then return nil end
    if written.err then redis.call('SET', TASK .. id, text, 'NX') end   -- raises the error: the store is full
  end
  if telling then tell(id, '-', state, 1, 0, '0', '-', place_of(tail, 1)) end
  if extra then
    if string.find(extra[1], 'b', 1, true) then
      -- here: batch
      enlist(id, extra, flow.place)
    end
    -- here: notes
    beside('HSET', MORE .. id, unpack(extra, 2))
  end
  if key ~= '' or nonce ~= '' then take_more(id, key, nonce) end
  if expires ~= '-' then redis.call('ZADD', EXPIRING, expires, id) end
  if extra and string.find(extra[1], 'l', 1, true) then
    -- here: lanes
    count_limited(id, 1)
    if state == 'queued' then enter_lane(id, parse(text), order(at, ARGV[a + 2])) end
  end
  if state == 'scheduled' then
    redis.call('ZADD', DUE, eta, id)
  elseif not string.find(flags, 'l', 1, true) then
    local rows = lined_up[queue] or {}
    lined_up[queue] = rows
    rows[#rows + 1] = order(at, ARGV[a + 2])
    rows[#rows + 1] = id
  end
  count('submitted')
  if charged then count('bytes', #tail) end
  return state
end
