-- Repairs doorbells, and removes marks and side keys without an owner.
-- use: time record batch hold mend
local function mend_queue(queue, _, kind)
  if kind == 'bell' and redis.call('LLEN', BELL .. queue) > 1 then
    redis.call('LTRIM', BELL .. queue, 0, 0)
    fixed('bell')
  end
  local key = (kind == 'bell' and BELL or READY) .. queue
  if redis.call('EXISTS', key) == 1 and redis.call('SADD', QUEUES, queue) == 1 then fixed('bell') end
end

local function left_over(key, kind)
  if redis.call('UNLINK', key) == 1 then fixed(kind) end
end

-- A lock's mark has an expiry. A mark that lost its expiry is removed well after its time is up.
local function mend_lock(key)
  local hold = read_hold(redis.call('GETRANGE', LOCK .. key, 0, HEAD_BYTES))
  if redis.call('PTTL', LOCK .. key) == -1 and (hold.till or 0) + BACKSTOP < now then left_over(LOCK .. key, 'lock') end
end

local function mend_key(key)
  local id = string.match(redis.call('GET', IDEM .. key) or '', '^(%S+)')
  local r = id and read(id)
  if r and (r.corrupt or r.state and ask('HGET', MORE .. id, 'key') == key) then return end
  left_over(IDEM .. key, 'key')
end

local SIDES = {more = MORE, history = HISTORY, checkpoint = CHECKPOINT, steps = STEPS, worker = WORKER, asked = ASKED,
  members = MEMBERS, plans = PLANS, results = RESULTS}

local function mend_side(id, _, kind)
  local r = read(id)
  if not r.state and not r.corrupt then left_over(SIDES[kind] .. id, 'leftover') end
end

local function mend_node(boot, _, kind)
  if not redis.call('ZSCORE', BOOTS, boot) then left_over(SIDES[kind] .. boot, 'leftover') end
end

local function mend_beside(id, _, kind)
  if not batch_of(id) then left_over(SIDES[kind] .. id, 'leftover') end
end
