-- Taking tasks out of a queue, for claim: who claims, how much, and what it has got so far.
-- use: record close expired
local boot, want, room, fence_now, since
local answer, told, claims, taken, put_aside, steps_room

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
  answer[taken + 2] = {id, text, more}
end

-- What is in the index but cannot run: expired, or broken. Tells whether it was so. One call does that to so many at
-- the most.
local MOST_PUT_AWAY = 200
local function put_away(id, r)
  -- here: corrupt
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

-- A plain task that never ran, in one straight line. What cannot be taken so is left to `take`.
local function take_plain(id, text)
  local state, version, fence, _, attempt, flags, _, width = string.match(text, RECORD)
  if state ~= 'queued' or fence ~= '0' or flags ~= '-' or width ~= WIDTH + 1 or #text > room then return false end
  room = room - #text
  local line = string.format('%-96s', 'running ' .. version + 1 .. ' ' .. fence_now .. ' ' .. boot .. ' ' .. attempt + 1 .. ' - ' .. since)
  redis.call('SETRANGE', TASK .. id, 0, line)
  taken = taken + 1
  answer[taken + 2] = {id, line .. string.sub(text, WIDTH + 1), false}
  got(id, fence_now)
  return true
end

-- One id popped from an index; false, and it goes back, when its payload no longer fits into this claim.
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
  if r.expires and r.fence == '0' then redis.call('ZREM', EXPIRING, id) end   -- what begins is never too late
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
