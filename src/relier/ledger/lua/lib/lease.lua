-- Decides who may settle an attempt, and removes it from its owner. Every finishing script calls `verdict` before it writes.
-- use: record close
-- 'ok': this attempt owns the task. 'repeat': the same call ran before. 'stale': another attempt, or none, owns the task.
local function verdict(id, r, move, fence, boot)
  if not r.state then return r.corrupt and 'corrupt' or 'missing' end
  if r.state == 'running' and r.fence == fence and r.owner == boot then return 'ok' end
  if move == 'commit' then
    if r.state == 'done' and r.fence == fence and r.owner == boot then return 'repeat' end
  elseif has(r, 'm') and ask('HGET', MORE .. id, 'settled') == move .. ':' .. fence then
    return 'repeat'
  end
  redis.call('HDEL', COUNTS, 'full')   -- even a full store accepts this write, and the writes after it: a zombie is always refused
  if move ~= 'progress' then count('refused') end   -- a late progress report does not count as a zombie's result
  return 'stale'
end

-- Settles a record that is gone or broken: takes it from its owner, and buries what is left of the record.
local function let_go(id, r, boot)
  if redis.call('ZREM', OWNED .. boot, id) == 1 then
    -- here: corrupt
    bury_corrupt(id, r)
  end
end

-- Removes a task from its owner. A full store accepts the first write here, and then those after it, so attempts can always be
-- settled.
local function leave(id, r)
  redis.call('ZREM', OWNED .. r.owner, id)
  if has(r, 'c') then redis.call('SREM', ASKED .. r.owner, id .. ' ' .. r.fence) end
  if has(r, 'l') then
    -- here: lanes
    free_slots(id)
  end
end
