-- Counts how tasks end, and how long they wait and run: one hash per minute and one per hour, by TIME.
-- A field has three lines: `<what> <bucket>`, queue, name. Its value is a count.
--   what: done, dead, cancelled or expired: an end, with the bucket of the last attempt's run time ('-': no attempt was running)
--         wait: a claim, with the bucket of the time since the task entered its queue
--   bucket: of a time in ms, four to a decade: 0, 1, 2, 3 to 4, 5 to 9, 10 to 19, 20 to 29, … The last one begins at 10^9
-- A hash with OUTCOME_FIELDS fields takes no new ones: it counts them under an empty queue and name.
-- These are statistics. Hashes are removed by their expiry. A script writes them last, and never fails because of them. `counting` is false
-- if RELIER_SLO is `off`. Callers ask for it first, so that the functions exist only where they are needed.
-- use: time layout
local counting = COUNTING and {}
local count_outcome, count_wait, write_outcomes

if counting then
  local heads, tallies = {}, {}   -- what and since -> first line of a field; first line -> queue and name -> count

  local function bucket(ms)
    if ms < 1 then return 0 end
    if ms >= 1000000000 then return 37 end
    local digits = tostring(ms)
    local first = string.byte(digits)
    return 4 * #digits - (first < 50 and 3 or first < 51 and 2 or first < 53 and 1 or 0)   -- begins with 1 | 2 | 3, 4 | 5 to 9
  end

  -- `since`: when the attempt or the wait began (ms), or false. `text`: the record. This runs for every task of a batch, so it
  -- avoids patterns and new strings: 0.4 µs instead of 1.5.
  count_outcome = function(what, since, text)
    local known = heads[what] or {}
    heads[what] = known
    local head = known[since]
    if not head then
      head = what .. ' ' .. (since and bucket(now - since) or '-')
      known[since] = head
    end
    local spec = string.find(text, '\n', WIDTH + 2, true)
    local queue = string.find(text, '\n', spec + 1, true)
    local place = string.sub(text, spec + 1, string.find(text, '\n', queue + 1, true) - 1)
    local tally = tallies[head] or {}
    tallies[head] = tally
    if not tally[place] then counting[#counting + 1] = {head, place} end
    tally[place] = (tally[place] or 0) + 1
  end

  -- `moved`: when the task entered its queue; '0' if it did so when it was accepted, which is the first word of line 2, in µs.
  count_wait = function(moved, text)
    count_outcome('wait', moved ~= '0' and moved or string.sub(text, WIDTH + 2, WIDTH + 14), text)
  end

  local function add(key, kept, head, place)
    local field, n = head .. '\n' .. place, tallies[head][place]
    if redis.pcall('HINCRBY', key, field, n) ~= n then return end
    local fields = redis.call('HLEN', key)   -- the field is new
    if fields == 1 then
      redis.call('PEXPIRE', key, kept)
    elseif fields == 64 then
      -- The server keeps up to 512 short fields in one list, which it searches from the beginning. A long field makes it use a real hash.
      local long = string.rep('-', 65)
      redis.call('HSET', key, long, 1)
      redis.call('HDEL', key, long)
    elseif fields > OUTCOME_FIELDS then
      redis.call('HDEL', key, field)
      redis.call('HINCRBY', key, head .. '\n\n', n)
    end
  end

  write_outcomes = function()
    local minute, hour = OUTCOMES .. 'm' .. math.floor(now / MINUTE), OUTCOMES .. 'h' .. math.floor(now / HOUR)
    for _, row in ipairs(counting) do
      add(minute, MINUTES_KEPT, row[1], row[2])
      add(hour, HOURS_KEPT, row[1], row[2])
    end
  end
end
