-- Adds a part to a joining task, which waits for parts: an item whose on_conflict says `join <size> <part>`. The first task that names
-- the joining task enters it, scheduled at its eta, which is its deadline. Each task stores its part among the joining task's steps,
-- under the part's name. Once the joining task has `size` parts, it is queued at once. A running or dead task still takes parts, so that a replay sees
-- all of them. A task that is done, cancelled, missing or broken takes none: steps never exist without their record.
-- use: time record spec order notes enter place
local function join(a, nth, value)
  local id = ARGV[a]
  local size, part = string.match(ARGV[a + 6], '^join (%d+) (%S+)$')
  if not look(a) then enter(a, nth, false, true) end
  local r = read(id)
  if not r.state or r.state == 'done' or r.state == 'cancelled' then return end
  beside('HSET', STEPS .. id, part, value)
  local first = not has(r, 's')
  mark(r, 's')
  if r.state == 'scheduled' and redis.call('HLEN', STEPS .. id) >= tonumber(size) then
    with_spec(r)
    redis.call('ZREM', DUE, id)
    r.state = 'queued'
    save(id, r)
    place(id, r, order(now_us, r.priority))
  elseif first then
    redis.call('SETRANGE', TASK .. id, 0, core(r))
  end
  if r.state == 'dead' then
    local left = redis.call('PTTL', TASK .. id)
    if left > 0 then redis.call('PEXPIRE', STEPS .. id, left) end   -- the steps live no longer than the record
  end
end
