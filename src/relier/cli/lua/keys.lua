-- What some keys are, and what they belong to, at one moment. Reads only.
-- ARGV: per key: its kind (see ledger/keys.py; 'boot' for a member of `boots` or `leases`), what it is per ('' nothing), the key
-- returns: per key {type, time to live (ms; -1 none), fact, …}   the facts, by kind:
--   task                               what it is, its home, its place there ('' none), is it a join that has looked for its
--                                      parts and waits on ('1' or '')
--   more, history, checkpoint, steps   what its task is
--   ready, bell                        is its queue in `queues` ('1' or ''), how long is it
--   owned, worker, asked               the end of its boot's lease ('' not registered)
--   boot                               the end of its lease, its lease's length, has it a worker hash ('' no)
--   idem                               its value, what the task in it is, the key which that task holds
-- use: record spec home
local function size(command, key) return ask(command, key) or 0 end

local function of_task(id)
  local r = read(id)
  local home = home_of(r)
  local waits = r.state == 'scheduled' and r.fence ~= '0' and has(r, 's') and with_spec(r).name == 'relier.chord'
  return what(r), home and string.sub(home, #P + 1) or '', home and ask('ZSCORE', home, id) or '', waits and '1' or ''
end

local function side(id) return what(read(id)) end
local function of_boot(boot) return ask('ZSCORE', BOOTS, boot) or '' end
local function of_queue(queue) return ask('SISMEMBER', QUEUES, queue) == 1 and '1' or '' end

local facts = {
  task = of_task, more = side, history = side, checkpoint = side, steps = side,
  owned = of_boot, worker = of_boot, asked = of_boot,
  ready = function(queue, key) return of_queue(queue), size('ZCARD', key) end,
  bell = function(queue, key) return of_queue(queue), size('LLEN', key) end,
  boot = function(boot)
    return of_boot(boot), ask('ZSCORE', LEASES, boot) or '', redis.call('EXISTS', WORKER .. boot) == 1 and '1' or ''
  end,
  idem = function(_, key)
    local value = ask('GET', key) or ''
    local id = string.match(value, '^(%S+)') or ''
    return value, what(read(id)), ask('HGET', MORE .. id, 'key') or ''
  end,
}

local found = {}
for i = 1, #ARGV, 3 do
  local kind, of, key = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local tell = facts[kind]
  found[#found + 1] = {redis.call('TYPE', key).ok, redis.call('PTTL', key)}
  if tell then
    for _, fact in ipairs({tell(of, key)}) do table.insert(found[#found], fact) end
  end
end
return found
