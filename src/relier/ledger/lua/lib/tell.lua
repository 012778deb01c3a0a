-- Writes events: what a script changed, at most one entry per topic and call, on the stream EVENTS of the topic.
-- The id of an entry is `<number>-<TIME (µs)>`. Changes are numbered per topic, and an entry has the number of its last one. So
-- gaps are visible, and a reader whose entry is gone knows that the stream was trimmed, emptied or rolled back.
-- An entry has one field, `<script> <how many changes>`. For `tasks`, its value is blocks of four lines:
--   <state before> <state> <version> <attempt> <fence> <worker id> <reason>   '-': none; `corrupt`: it could not be read
--   <queue>
--   <name>
--   <id> <id> …
-- For other topics it is a JSON array of {kind, id, name, state before, state, version, reason}.
-- `telling` is false if no events are written: RELIER_EVENTS is `never`, or it is `watched` and no reader has left its mark. Callers
-- check it first, so that the functions exist only where they are needed. A script never fails because of its events, and
-- writes them last: a full store accepts them after the script's other writes.
-- use: time layout
local telling = TELLING and {}
local tell, tell_record, news, place_of, publish, publish_all

if telling then
  local block, tasks, ids = {}, 0, nil   -- the header that the last tasks share, the number of changes, their ids

  -- Renumbers an entry after another program wrote to the stream or to its counter.
  local function repair(topic, n)
    local newest = redis.pcall('XREVRANGE', EVENTS .. topic, '+', '-', 'COUNT', 1)
    if newest.err then redis.call('UNLINK', EVENTS .. topic) end
    local last = tonumber(string.match(newest[1] and newest[1][1] or '0', '^%d+')) + n
    redis.call('SET', EVENT_NUMBERS .. topic, string.format('%.0f', last))
    return last
  end

  -- Writes one entry, and trims the stream whenever its number passes a multiple of EVENTS_STEP.
  publish = function(topic, n, text)
    local function add(last)
      return redis.pcall('XADD', EVENTS .. topic, string.format('%.0f-%.0f', last, now_us), SCRIPT .. ' ' .. n, text)
    end
    local last = redis.pcall('INCRBY', EVENT_NUMBERS .. topic, n)
    if type(last) ~= 'number' or type(add(last)) ~= 'string' then
      last = repair(topic, n)
      add(last)
    end
    if math.floor(last / EVENTS_STEP) > math.floor((last - n) / EVENTS_STEP) then
      redis.pcall('XTRIM', EVENTS .. topic, 'MINID', string.format('%.0f', math.max(0, last - EVENTS_KEPT + 1)))
    end
  end

  -- Returns `<queue>\n<name>` from a record's text or, if `from` is 1, from a tail (see item.lua).
  place_of = function(text, from) return string.match(text, '\n([^\n]*\n[^\n]*)\n', from or WIDTH + 2) end

  -- Notes a change of one task. Tasks that share all values but the id share a block.
  tell = function(id, was, state, version, attempt, fence, worker, place, why)
    local b = block
    tasks = tasks + 1
    if ids and b[1] == was and b[2] == state and b[3] == version and b[4] == attempt and b[5] == fence and b[6] == worker and
      b[7] == place and b[8] == why then
      ids[#ids + 1] = id
      return
    end
    if ids then telling[#telling + 1] = table.concat(ids, ' ') end
    block, ids = {was, state, version, attempt, fence, worker, place, why}, {id}
    why = why and string.gsub(why, '%c', ' ') or '-'
    telling[#telling + 1] = was .. ' ' .. state .. ' ' .. version .. ' ' .. attempt .. ' ' .. fence .. ' ' .. worker .. ' ' .. why
    telling[#telling + 1] = place
  end

  -- Notes that a record changed since it was read. The worker is that of the attempt which begins or ends.
  tell_record = function(id, r, why)
    local begins_or_ends = r.was == 'running' or r.state == 'running'
    local worker = begins_or_ends and (r.owner ~= '-' and r.owner or r.worker) or '-'
    tell(id, r.was, r.state, r.version, r.attempt, r.fence, worker, place_of(r.text), why or r.why)
    r.was = r.state
  end

  -- Notes a change of a batch, a schedule or the cluster.
  news = function(topic, ...)
    local rows = telling[topic] or {}
    telling[topic] = rows
    rows[#rows + 1] = {...}
  end

  publish_all = function()
    if tasks > 0 then
      telling[#telling + 1] = table.concat(ids, ' ')
      publish('tasks', tasks, table.concat(telling, '\n'))
    end
    for _, topic in ipairs({'batches', 'schedules', 'cluster'}) do
      if telling[topic] then publish(topic, #telling[topic], cjson.encode(telling[topic])) end
    end
  end
end
