-- Claims up to `want` tasks for a live worker, queue by queue in the order given, revived tasks first. Paused queues are
-- skipped. A task whose limits do not allow it to run now waits for them (lib/lanes.lua). A task past `expires` that never ran ends
-- as cancelled. A task whose record is broken ends as dead. If there is no record left to end, the id leaves the index and is
-- counted as a stray.
-- ARGV: boot (worker id), lane, seq, want, max record bytes, rung ('1': this claim consumed a ring of the doorbell), queue, …
--   lane and seq: a worker numbers its claims upwards within a lane, and sends one at a time. A repeated claim gets the same tasks. A
--   claim that arrives after a newer one that took tasks gets nothing. If the newer ones were empty, it does take tasks: the
--   worker, which compares the tasks it owns with the tasks it runs, hands the extra ones back.
-- returns: {'ok', TIME (ms), {id, record, more}, …}   more: false, or
--            {checkpoint, {step, value, …}, retries, deaths, scares, since, revision, locked since, the cursor for further steps
--             (false: there are none; see steps.lua)}
--          {'gone'} the worker is lost | {'old'} a newer claim of the lane was seen | {'role', role} the node is not a worker
-- use: claim_one
local answer = claim_one()
if answer then return answer end

-- here: time layout record tell outcomes close expired
local lane, seq = 'lane:' .. ARGV[2], tonumber(ARGV[3])
local boot, want, room = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local worker = redis.call('HMGET', WORKER .. boot, 'registered', 'lost', lane, 'role')
if not worker[1] or worker[2] then return {'gone'} end
if (worker[4] or 'worker') ~= 'worker' then return {'role', worker[4]} end

local claimed, told, claims, taken, put_aside = {'ok', now}, {ARGV[3]}, {}, 0, 0
local fence_now, since = digits(now_us), digits(now)
local steps_room
local one_by_one = false   -- true after a limited task, because its claim may have added other tasks to the queue

local function hand_over(id, r, text)
  local more = false
  if r.flags ~= '-' then
    local past = has(r, 'm') and ask('HMGET', MORE .. id, 'retries', 'deaths', 'scares', 'since', 'revision', 'locked_since') or {}
    local steps, left = {}, false
    if has(r, 's') then
      -- here: step_page
      steps_room = steps_room or step_room()
      steps, left = step_page(id, '0', steps_room)
    end
    more = {has(r, 'k') and ask('GET', CHECKPOINT .. id), steps, past[1] or false, past[2] or false, past[3] or false, past[4] or false,
      past[5] or false, past[6] or false, left}
  end
  taken = taken + 1
  claimed[taken + 2] = {id, text, more}
end

-- Ends a task that is in the index but cannot run, because it expired or its record is broken. Returns whether it ended the task.
-- To bound its work, one call ends at most 200 such tasks, or 100 with limits, which cost more.
local MOST_PUT_AWAY = 200
local function put_away(id, r)
  -- here: corrupt finish_why
  if r.state == 'queued' and not expired(r) then return false end
  put_aside = put_aside + 1
  if r.state == 'queued' then
    -- here: place
    displace(id, r)
    one_by_one = one_by_one or has(r, 'l')
    finish_cancelled(id, r, 'expired')
  else
    bury_corrupt(id, r)
  end
  return true
end

local function got(id, fence)
  local n = #claims
  claims[n + 1], claims[n + 2] = since, id
  told[n + 2], told[n + 3] = id, fence
end

-- Claims a plain task that never ran; returns false for any other. 7.1 µs instead of 8.2 (make bench-ledger, claim, 100 to a
-- script).
local function take_plain(id, text)
  local state, version, fence, _, attempt, flags, moved, width = string.match(text, RECORD)
  if state ~= 'queued' or fence ~= '0' or flags ~= '-' or width ~= WIDTH + 1 or #text > room then return false end
  room = room - #text
  local line = first_line('running', version + 1, fence_now, boot, attempt + 1, '-', since)
  redis.call('SETRANGE', TASK .. id, 0, line)
  taken = taken + 1
  claimed[taken + 2] = {id, line .. string.sub(text, WIDTH + 1), false}
  got(id, fence_now)
  if counting then count_wait(moved, text) end
  if telling then tell(id, 'queued', 'running', version + 1, attempt + 1, fence_now, boot, place_of(text)) end
  return true
end

-- Returns whether the limits of a task, if it has any, let it run now.
local gate
local function may_run(id, r, score, fence)
  if not has(r, 'l') then return true end
  one_by_one, put_aside = true, put_aside + 2
  gate = gate or (function()
    -- here: admit
    return admit
  end)()
  return gate(id, r, score, fence)
end

-- Claims one id popped from an index. If its record no longer fits into this claim, puts the id back and returns false.
local function take(index, id, score)
  local text = redis.pcall('GET', TASK .. id)
  if type(text) == 'string' and take_plain(id, text) then return true end
  local r = type(text) == 'string' and parse(text) or {corrupt = text and 'type' or nil}
  if (r.state ~= 'queued' or has(r, 'o')) and put_away(id, r) then return true end
  if #text > room and taken > 0 then
    redis.call('ZADD', index, score, id)
    return false
  end
  local fence = tonumber(r.fence) < now_us and fence_now or digits(r.fence + 1)
  if not may_run(id, r, score, fence) then return true end
  room = room - #text
  if r.expires and r.fence == '0' then redis.call('ZREM', EXPIRING, id) end   -- a task that has begun can no longer expire
  r.fence = fence
  if counting then count_wait(r.moved, text) end
  r.state, r.owner, r.attempt = 'running', boot, r.attempt + 1
  step_version(r)
  local line = core(r)
  redis.call('SETRANGE', TASK .. id, 0, line)
  hand_over(id, r, line .. string.sub(text, WIDTH + 1))
  got(id, r.fence)
  if telling then tell_record(id, r) end
  return true
end

-- Takes tasks from one index. Returns true once the index is empty, and false if the claim is full before that.
local function drain(index)
  while taken < want and put_aside < MOST_PUT_AWAY do
    local popped = redis.call('ZPOPMIN', index, one_by_one and 1 or math.min(want - taken, MOST_PUT_AWAY - put_aside))
    if #popped == 0 then return true end
    local fits = true
    for i = 1, #popped, 2 do
      if fits and (i == 1 or not one_by_one) then fits = take(index, popped[i], popped[i + 1])
      else redis.call('ZADD', index, popped[i + 1], popped[i]) end
    end
    if not fits then return false end
  end
  return false
end

local last = worker[3]
if last and seq <= tonumber(string.match(last, '^%d+')) then
  local words = {}
  for word in string.gmatch(last, '%S+') do words[#words + 1] = word end
  if seq < tonumber(words[1]) then return {'old'} end
  -- Return the tasks of the lane's last claim again, as far as this worker still owns them.
  -- The words stored: the seq, then each id and fence.
  for i = 2, #words, 2 do
    local text = ask('GET', TASK .. words[i])
    local r = parse(text or '')
    if r.state == 'running' and r.owner == boot and r.fence == words[i + 1] then hand_over(words[i], r, text) end
  end
  return claimed
end

local full = false
for i = 7, #ARGV do
  local queue = ARGV[i]
  local pause = redis.call('HGET', PAUSES, queue)
  if not pause or string.sub(pause, 1, 1) == '0' then
    if not full then full = not drain(READY .. queue) end
    -- Ring again for the tasks that are left: this claim consumed the ring but has no room for them, or it reached its limit of
    -- ended tasks before it saw them.
    if full and (ARGV[6] == '1' or put_aside >= MOST_PUT_AWAY) and redis.call('EXISTS', READY .. queue) == 1 then ring(queue) end
  end
end
if taken > 0 then
  zadd(OWNED .. boot, claims)
  redis.call('HSET', WORKER .. boot, lane, table.concat(told, ' '))
end
close()
return claimed
