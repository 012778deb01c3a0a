-- Collects what a script writes once, at its end: counters, ended records, rings of doorbells, follow-ups of ended members,
-- outcomes, and events.
-- use: tell outcomes
local tally, rung, ends, parted = {}, {}, {}, {}

local function count(field, n) tally[field] = (tally[field] or 0) + (n or 1) end

-- Rings a queue's doorbell: a list that holds at most one element. A ring says "there may be work". Nothing depends on whether
-- it is taken, lost or doubled.
local function ring(queue) rung[queue] = true end

local function end_later(state, eol, id)
  local rows = ends[state] or {}
  ends[state] = rows
  rows[#rows + 1] = eol
  rows[#rows + 1] = id
end

-- Notes the end of a task that is a member of a batch.
local function part(id, state, value) parted[#parted + 1] = {id, state, value} end

-- Adds many rows, in parts that fit into one call.
local function zadd(key, rows)
  local added = 0
  for i = 1, #rows, 1000 do added = added + redis.call('ZADD', key, unpack(rows, i, math.min(i + 999, #rows))) end
  return added
end

local function close()
  if parted[1] then
    -- here: workflow
    end_members(parted)
  end
  for state, rows in pairs(ends) do zadd(ENDED .. state, rows) end
  for field, n in pairs(tally) do redis.call('HINCRBY', COUNTS, field, n) end
  for queue in pairs(rung) do
    if redis.call('LLEN', BELL .. queue) == 0 then
      redis.call('RPUSH', BELL .. queue, '1')
      redis.call('SADD', QUEUES, queue)
    end
  end
  if counting then write_outcomes() end
  if telling then publish_all() end
end
