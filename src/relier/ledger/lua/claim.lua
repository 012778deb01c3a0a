-- Claims up to `want` tasks for a live boot, queue by queue in the order given, revived tasks first. Paused queues are
-- skipped. A task past `expires` that never ran ends as cancelled. A task whose record is broken ends as dead. If there is no
-- record left to end, the id leaves the index and is counted as a stray.
-- ARGV: boot, lane, seq, want, max record bytes, rung ('1': a ring was taken for this claim), queue, …
--   lane and seq: a boot's claims are numbered upwards per lane, one at a time. A repeated claim gets the same set again. A
--   claim that arrives after a newer one that took tasks gets nothing. If the newer ones were empty, it does take tasks: the
--   worker, which compares what it owns with what it runs, hands those back.
-- returns: {'ok', TIME (ms), {id, record, more}, …}   more: false, or
--            {checkpoint, {step, value, …}, retries, deaths, scares, since, revision, locked since, where the rest of the steps begins
--             (false: none is left; see steps.lua)}
--          {'gone'} the boot is lost | {'old'} a newer claim of the lane was seen
-- use: claim_one
local answer = claim_one()
if answer then return answer end

-- here: time layout record close expired
local lane, seq = 'lane:' .. ARGV[2], tonumber(ARGV[3])
local boot, want, room = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local worker = redis.call('HMGET', WORKER .. boot, 'registered', 'lost', lane)
if not worker[1] or worker[2] then return {'gone'} end

local claimed, told, claims, taken, put_aside = {'ok', now}, {ARGV[3]}, {}, 0, 0
local fence_now, since = digits(now_us), digits(now)
local steps_room

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

-- Ends a task that is in the index but cannot run, because it expired or its record is broken. Returns whether that was so.
-- One call ends at most MOST_PUT_AWAY tasks this way.
local MOST_PUT_AWAY = 200
local function put_away(id, r)
  -- here: corrupt finish_why
  if r.state == 'queued' and not expired(r) then return false end
  put_aside = put_aside + 1
  if r.state == 'queued' then finish_cancelled(id, r, 'expired') else bury_corrupt(id, r) end
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
  local state, version, fence, _, attempt, flags, _, width = string.match(text, RECORD)
  if state ~= 'queued' or fence ~= '0' or flags ~= '-' or width ~= WIDTH + 1 or #text > room then return false end
  room = room - #text
  local line = first_line('running', version + 1, fence_now, boot, attempt + 1, '-', since)
  redis.call('SETRANGE', TASK .. id, 0, line)
  taken = taken + 1
  claimed[taken + 2] = {id, line .. string.sub(text, WIDTH + 1), false}
  got(id, fence_now)
  return true
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
  room = room - #text
  if r.expires and r.fence == '0' then redis.call('ZREM', EXPIRING, id) end   -- a task that has begun can no longer expire
  r.fence = tonumber(r.fence) < now_us and fence_now or digits(r.fence + 1)
  r.state, r.owner, r.attempt = 'running', boot, r.attempt + 1
  step_version(r)
  local line = core(r)
  redis.call('SETRANGE', TASK .. id, 0, line)
  hand_over(id, r, line .. string.sub(text, WIDTH + 1))
  got(id, r.fence)
  return true
end

-- Takes from one index until it is empty (true) or the claim is full (false).
local function drain(index)
  while taken < want and put_aside < MOST_PUT_AWAY do
    local popped = redis.call('ZPOPMIN', index, math.min(want - taken, MOST_PUT_AWAY - put_aside))
    if #popped == 0 then return true end
    local fits = true
    for i = 1, #popped, 2 do
      if fits then fits = take(index, popped[i], popped[i + 1])
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
  -- Repeat the set of the lane's last claim, as far as this boot still owns it. Its words: the seq, then each id and fence.
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
    -- Ring again for the tasks that are left: this claim used up the ring but has no room for them, or it reached its limit of
    -- tasks put away before it saw them.
    if full and (ARGV[6] == '1' or put_aside >= MOST_PUT_AWAY) and redis.call('EXISTS', READY .. queue) == 1 then ring(queue) end
  end
end
if taken > 0 then
  zadd(OWNED .. boot, claims)
  redis.call('HSET', WORKER .. boot, lane, table.concat(told, ' '))
end
close()
return claimed
