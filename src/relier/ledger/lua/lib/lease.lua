-- Who may settle an attempt, and how it leaves its owner. Every finishing script asks `verdict` before it writes.
-- use: record close
-- 'ok': this attempt owns the task. 'repeat': this very call ran before. 'stale': another attempt, or nobody, owns it.
local function verdict(id, r, move, fence, boot)
  if not r.state then return r.corrupt and 'corrupt' or 'missing' end
  if r.state == 'running' and r.fence == fence and r.owner == boot then return 'ok' end
  if move == 'commit' then
    if r.state == 'done' and r.fence == fence and r.owner == boot then return 'repeat' end
  elseif has(r, 'm') and ask('HGET', MORE .. id, 'settled') == move .. ':' .. fence then
    return 'repeat'
  end
  redis.call('HDEL', COUNTS, 'full')   -- a first write that a full store does not refuse: a zombie is always told
  if move ~= 'progress' then count('refused') end   -- a word that comes late is no zombie's
  return 'stale'
end

-- To settle a record that is gone or broken: whoever held it holds nothing any more, and what is left of it is buried.
local function let_go(id, r, boot)
  if redis.call('ZREM', OWNED .. boot, id) == 1 then
    -- here: corrupt
    bury_corrupt(id, r)
  end
end

-- Its first write is one that a full store does not refuse, so whoever settles can always settle.
local function leave(id, r)
  redis.call('ZREM', OWNED .. r.owner, id)
  if has(r, 'c') then redis.call('SREM', ASKED .. r.owner, id .. ' ' .. r.fence) end
end
